"""Where a request goes."""

from django.contrib import admin
from django.urls import path
from django.views.generic import RedirectView

from shopmicro.api import api
from shopmicro.health import healthz, readyz

urlpatterns = [
    path("", RedirectView.as_view(url="/v1/docs")),
    path("v1/", api.urls),
    path("admin/", admin.site.urls),
    path("healthz", healthz),
    path("readyz", readyz),
]
