"""Leave room on each page, so that a change of status is a HOT update and touches no index."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("orders", "0001_initial")]
    operations = [
        migrations.RunSQL(
            "ALTER TABLE orders SET (fillfactor = 70)", "ALTER TABLE orders RESET (fillfactor)"
        ),
    ]
