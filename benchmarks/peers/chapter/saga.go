package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	recordEvent  = `INSERT INTO processed_events (event_id) VALUES ($1) ON CONFLICT DO NOTHING`
	lockOrder    = `SELECT status, customer_id, total_cents FROM orders WHERE id = $1 FOR UPDATE`
	resolveOrder = `UPDATE orders SET status = $2, reason = $3, updated_at = now() WHERE id = $1`
	tell         = `INSERT INTO outbox (event_id, topic, aggregate_id, type, payload, occurred_at)
		VALUES ($1, 'orders', $2, $3, $4, $5)`
)

// Event is the envelope of the contract around a payload of type P.
type Event[P any] struct {
	ID          string    `json:"id"`
	Type        string    `json:"type"`
	AggregateID string    `json:"aggregate_id"`
	Payload     P         `json:"payload"`
	OccurredAt  time.Time `json:"occurred_at"`
}

// PaymentResult is the payload of payment.succeeded and payment.failed.
type PaymentResult struct {
	OrderID     string `json:"order_id"`
	AmountCents int64  `json:"amount_cents"`
	Reason      string `json:"reason"`
}

// Resolution is the payload of order.confirmed and order.cancelled.
type Resolution struct {
	OrderID     string `json:"order_id"`
	CustomerID  string `json:"customer_id"`
	AmountCents int64  `json:"amount_cents"`
	Reason      string `json:"reason,omitempty"`
}

func decode(value []byte) (Event[PaymentResult], error) {
	var event Event[PaymentResult]
	if err := json.Unmarshal(value, &event); err != nil {
		return event, fmt.Errorf("decode an event: %w", err)
	}
	return event, nil
}

// apply moves the order of a payment result on, once, in one transaction.
func apply(ctx context.Context, conn *pgx.Conn, event Event[PaymentResult]) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return applyIn(ctx, tx, event) })
	if err != nil {
		return fmt.Errorf("apply event %s: %w", event.ID, err)
	}
	return nil
}

func applyIn(ctx context.Context, tx pgx.Tx, event Event[PaymentResult]) error {
	recorded, err := tx.Exec(ctx, recordEvent, event.ID)
	if err != nil || recorded.RowsAffected() == 0 {
		return err
	}
	var was string
	resolution := Resolution{OrderID: event.Payload.OrderID, Reason: event.Payload.Reason}
	row := tx.QueryRow(ctx, lockOrder, resolution.OrderID)
	if err := row.Scan(&was, &resolution.CustomerID, &resolution.AmountCents); err != nil {
		return err
	}
	if was != "pending" {
		return nil
	}
	status := "confirmed"
	if event.Type == "payment.failed" {
		status = "cancelled"
	}
	if _, err := tx.Exec(ctx, resolveOrder, resolution.OrderID, status, resolution.Reason); err != nil {
		return err
	}
	return publish(ctx, tx, status, resolution)
}

func publish(ctx context.Context, tx pgx.Tx, status string, resolution Resolution) error {
	event := Event[Resolution]{
		ID:          resolution.OrderID + ":" + status,
		Type:        "order." + status,
		AggregateID: resolution.OrderID,
		Payload:     resolution,
		OccurredAt:  time.Now().UTC(),
	}
	value, err := json.Marshal(event)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, tell, event.ID, event.AggregateID, event.Type, string(value), event.OccurredAt)
	return err
}
