// River for Go under the load of `bench/peers/run`: jobs are submitted one by one, then in
// batches, and these are drained by one worker with a handler that does nothing. Prints one line of
// JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

var (
	url           = flag.String("url", "", "PostgreSQL, in which databases are made and dropped")
	jobs          = flag.Int("jobs", 200_000, "jobs of the drain; 0 leaves it out")
	payload       = flag.Int("payload", 200, "bytes of a payload")
	batch         = flag.Int("batch", 1_000, "jobs of a batch")
	submitters    = flag.Int("submitters", 4, "batches in flight")
	callers       = flag.String("callers", "1,20,50", "single submissions in flight")
	singleSeconds = flag.Int("single-seconds", 5, "seconds of each; 0 leaves them out")
	concurrency   = flag.Int("concurrency", 2_000, "handlers at once")
	pollMs        = flag.Int("poll-ms", 10, "the least and the most time between two fetches")
	connections   = flag.Int("connections", 20, "connections of the pool")
	patience      = flag.Int("patience", 300, "seconds until it gives up")
)

type nothing struct {
	Data string `json:"data"`
}

func (nothing) Kind() string { return "nothing" }

type client = river.Client[pgx.Tx]

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if *url == "" || *batch < 1 || flag.NArg() > 0 {
		return errors.New("usage: --url postgres://… [FLAGS]; --help has them")
	}
	result := map[string]any{"peer": "River (Go)", "version": version()}
	if *singleSeconds > 0 {
		for _, text := range strings.Split(*callers, ",") {
			count, err := strconv.Atoi(text)
			if err != nil {
				return fmt.Errorf("--callers %s: %w", *callers, err)
			}
			err = withDatabase(ctx, func(pool *pgxpool.Pool) error {
				rate, err := single(ctx, pool, count)
				result[fmt.Sprintf("single_%d_per_s", count)] = rate
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	if *jobs > 0 {
		if err := withDatabase(ctx, func(pool *pgxpool.Pool) error { return bulk(ctx, pool, result) }); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// Makes a database of its own in the server of the URL, with River's tables in it. It is gone at the
// end.
func withDatabase(ctx context.Context, work func(*pgxpool.Pool) error) error {
	server, err := pgx.Connect(ctx, *url)
	if err != nil {
		return err
	}
	defer server.Close(context.WithoutCancel(ctx))
	name := fmt.Sprintf("peer_river_go_%d", os.Getpid())
	if _, err := server.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return err
	}
	drop := func() error {
		_, err := server.Exec(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)")
		return err
	}
	return errors.Join(inDatabase(ctx, name, work), drop())
}

func inDatabase(ctx context.Context, name string, work func(*pgxpool.Pool) error) error {
	config, err := pgxpool.ParseConfig(*url)
	if err != nil {
		return err
	}
	config.ConnConfig.Database = name
	config.MaxConns = int32(*connections)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet()})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	return work(pool)
}

func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

// How many jobs a second are stored that many callers submit one by one.
func single(ctx context.Context, pool *pgxpool.Pool, count int) (int, error) {
	inserter, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: quiet()})
	if err != nil {
		return 0, err
	}
	var seeds, stored atomic.Int64
	start := time.Now()
	end := start.Add(time.Duration(*singleSeconds) * time.Second)
	err = together(count, func() error {
		for time.Now().Before(end) {
			if _, err := inserter.Insert(ctx, nothing{data(seeds.Add(1))}, nil); err != nil {
				return err
			}
			stored.Add(1)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	took := time.Since(start)
	rows, err := counted(ctx, pool, "")
	if err != nil {
		return 0, err
	}
	if rows != stored.Load() {
		return 0, fmt.Errorf("%d jobs were submitted, the database has %d", stored.Load(), rows)
	}
	return perSecond(rows, took), nil
}

// How fast jobs are submitted in batches, and drained.
func bulk(ctx context.Context, pool *pgxpool.Pool, result map[string]any) error {
	submitted, err := submit(ctx, pool)
	if err != nil {
		return err
	}
	stored, err := counted(ctx, pool, "WHERE state = 'available'")
	if err != nil {
		return err
	}
	drained, done, err := drain(ctx, pool)
	if err != nil {
		return err
	}
	result["submit_per_s"] = perSecond(int64(*jobs), submitted)
	result["drain_per_s"] = perSecond(int64(*jobs), drained)
	result["stored"], result["done"] = stored, done
	return nil
}

// Adds all jobs, due at once, in batches. They are made beforehand.
func submit(ctx context.Context, pool *pgxpool.Pool) (time.Duration, error) {
	inserter, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: quiet()})
	if err != nil {
		return 0, err
	}
	batches := make(chan []river.InsertManyParams, *jobs / *batch + 1)
	for from := 0; from < *jobs; from += *batch {
		params := make([]river.InsertManyParams, min(*batch, *jobs-from))
		for index := range params {
			params[index].Args = nothing{data(int64(from + index))}
		}
		batches <- params
	}
	close(batches)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(*patience)*time.Second)
	defer cancel()
	start := time.Now()
	err = together(*submitters, func() error {
		for params := range batches {
			if _, err := inserter.InsertManyFast(ctx, params); err != nil {
				return err
			}
		}
		return nil
	})
	return time.Since(start), err
}

// How long one worker takes until the database has all jobs as completed.
func drain(ctx context.Context, pool *pgxpool.Pool) (time.Duration, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(*patience)*time.Second)
	defer cancel()
	var handled atomic.Int64
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[nothing]) error {
		handled.Add(1)
		return nil
	}))
	poll := time.Duration(*pollMs) * time.Millisecond
	worker, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown:     poll,
		FetchPollInterval: poll,
		Logger:            quiet(),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: *concurrency}},
		Workers:           workers,
	})
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if err := worker.Start(ctx); err != nil {
		return 0, 0, err
	}
	done, err := untilCompleted(ctx, pool, &handled)
	took := time.Since(start)
	return took, done, errors.Join(err, stopped(worker))
}

func untilCompleted(ctx context.Context, pool *pgxpool.Pool, handled *atomic.Int64) (int64, error) {
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for {
		// The table is only asked once the handlers have run: counting it costs the database.
		if handled.Load() >= int64(*jobs) {
			done, err := counted(ctx, pool, "WHERE state = 'completed'")
			if err != nil || done >= int64(*jobs) {
				return done, err
			}
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("only %d of %d jobs were done: %w", handled.Load(), *jobs, ctx.Err())
		case <-ticks.C:
		}
	}
}

func stopped(worker *client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return worker.StopAndCancel(ctx)
}

func counted(ctx context.Context, pool *pgxpool.Pool, which string) (count int64, err error) {
	err = pool.QueryRow(ctx, "SELECT count(*) FROM river_job "+which).Scan(&count)
	return count, err
}

// Runs that many at once, until all have ended.
func together(count int, work func() error) error {
	faults := make([]error, count)
	var running sync.WaitGroup
	for index := range faults {
		running.Go(func() { faults[index] = work() })
	}
	running.Wait()
	return errors.Join(faults...)
}

// Digits that do not compress, so many that the whole payload has the size.
func data(number int64) string {
	wanted := max(0, *payload-len(`{"data":""}`))
	var text strings.Builder
	seed := (uint64(number) + 1) * 0x9e3779b97f4a7c15
	for text.Len() < wanted {
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		fmt.Fprintf(&text, "%016x", seed)
	}
	return text.String()[:wanted]
}

func perSecond(count int64, took time.Duration) int {
	return int(float64(count)/took.Seconds() + 0.5)
}

// The version of the package, as it was resolved.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/riverqueue/river" {
				return strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	return "unknown"
}
