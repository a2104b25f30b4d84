WITH event AS MATERIALIZED (
    SELECT * FROM unnest(
        %(ids)b::text[], %(orders)b::uuid[], %(successes)b::bool[], %(amounts)b::bigint[], %(reasons)b::text[]
    ) WITH ORDINALITY AS event (event_id, order_id, succeeded, amount_cents, reason, place)
), recorded AS (
    INSERT INTO processed_events (event_id)
    SELECT event_id FROM event ORDER BY event_id COLLATE "C"
    ON CONFLICT DO NOTHING
    RETURNING event_id
), locked AS MATERIALIZED (
    SELECT id, customer_id, total_cents FROM orders
    WHERE id = ANY(%(orders)b::uuid[]) AND status = 'pending'
    ORDER BY id FOR UPDATE
), winner AS MATERIALIZED (
    SELECT DISTINCT ON (locked.id)
        locked.id, customer_id, total_cents, reason,
        CASE WHEN succeeded THEN 'confirmed' ELSE 'cancelled' END AS status
    FROM event
    JOIN recorded USING (event_id)
    JOIN locked ON locked.id = event.order_id AND locked.total_cents = event.amount_cents
    ORDER BY locked.id, place
), resolved AS (
    UPDATE orders SET status = winner.status, reason = winner.reason, updated_at = now()
    FROM winner WHERE orders.id = winner.id
)
INSERT INTO outbox (event_id, topic, aggregate_id, type, payload, occurred_at)
SELECT id || ':' || status, 'orders', id, 'order.' || status,
    json_build_object(
        'id', id || ':' || status, 'type', 'order.' || status, 'aggregate_id', id,
        'payload', CASE status
            WHEN 'confirmed' THEN json_build_object(
                'order_id', id, 'customer_id', customer_id, 'amount_cents', total_cents)
            ELSE json_build_object(
                'order_id', id, 'customer_id', customer_id, 'amount_cents', total_cents, 'reason', reason)
        END,
        'occurred_at', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
    )::text,
    now()
FROM winner
