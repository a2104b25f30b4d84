// Chapter is the original course's saga as a program: one transaction an event, the offset
// committed after each. Several consumers run in one process, each a member of the group with a
// database connection of its own.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Options say where to read, as whom, and how many consumers to run.
type Options struct {
	databaseURL, brokers, topic, group string
	consumers                          int
}

func main() {
	var options Options
	flag.StringVar(&options.topic, "topic", "", "topic of the payment results")
	flag.StringVar(&options.group, "group", "", "consumer group")
	flag.IntVar(&options.consumers, "consumers", 1, "members of the group")
	flag.Parse()
	options.databaseURL = os.Getenv("DATABASE_URL")
	options.brokers = os.Getenv("KAFKA_BOOTSTRAP_SERVERS")

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := runAll(ctx, options); err != nil {
		log.Fatal(err)
	}
}

// runAll runs the consumers until the context ends; the first error ends them all.
func runAll(ctx context.Context, options Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var consumers sync.WaitGroup
	var first sync.Once
	var failure error
	for range options.consumers {
		consumers.Go(func() {
			if err := consume(ctx, options); err != nil {
				first.Do(func() { failure = err })
				cancel()
			}
		})
	}
	consumers.Wait()
	return failure
}

func consume(ctx context.Context, options Options) error {
	conn, err := pgx.Connect(ctx, options.databaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	client, err := kgo.NewClient(
		kgo.SeedBrokers(options.brokers),
		kgo.ConsumerGroup(options.group),
		kgo.ConsumeTopics(options.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		for records := fetches.RecordIter(); !records.Done(); {
			if err := handle(ctx, conn, client, records.Next()); err != nil {
				return stopped(ctx, err)
			}
		}
	}
}

func handle(ctx context.Context, conn *pgx.Conn, client *kgo.Client, record *kgo.Record) error {
	result, err := decode(record.Value)
	if err != nil {
		return err
	}
	if err := apply(ctx, conn, result); err != nil {
		return err
	}
	return client.CommitRecords(ctx, record)
}

// stopped gives no error if the context's end is what caused it.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
