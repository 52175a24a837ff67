// db-scheduler under the load of `bench/peers/run`: jobs are submitted one by one, then in
// batches, and these are drained by one scheduler with a task that does nothing. Prints one line of
// JSON.

import com.github.kagkarlsson.scheduler.Scheduler;
import com.github.kagkarlsson.scheduler.SchedulerClient;
import com.github.kagkarlsson.scheduler.task.TaskInstance;
import com.github.kagkarlsson.scheduler.task.helper.OneTimeTask;
import com.github.kagkarlsson.scheduler.task.helper.Tasks;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;

public final class Main {
  static {
    // Before any of the libraries makes its logger.
    System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "error");
  }

  private static final Map<String, String> FLAGS =
      new LinkedHashMap<>(
          Map.ofEntries(
              Map.entry("--url", ""),
              Map.entry("--jobs", "200000"),
              Map.entry("--payload", "200"),
              Map.entry("--batch", "1000"),
              Map.entry("--submitters", "4"),
              Map.entry("--callers", "1,20,50"),
              Map.entry("--single-seconds", "5"),
              // Jobs that are submitted and drained first, so that the JVM has compiled the path of a job.
              Map.entry("--warm-up", "20000"),
              Map.entry("--threads", "20"),
              // Of the threads: when to fetch again, and how many executions to hold at most.
              Map.entry("--low-limit", "1"),
              Map.entry("--high-limit", "50"),
              Map.entry("--poll-ms", "100"),
              Map.entry("--connections", "20"),
              Map.entry("--patience", "300")));

  // What the library asks for, without the index of priorities, which are not in use.
  private static final String SCHEMA =
      """
      CREATE TABLE scheduled_tasks (
        task_name text NOT NULL, task_instance text NOT NULL, task_data bytea,
        execution_time timestamptz, picked boolean NOT NULL, picked_by text,
        last_success timestamptz, last_failure timestamptz, consecutive_failures int,
        last_heartbeat timestamptz, version bigint NOT NULL, priority smallint, state text,
        PRIMARY KEY (task_name, task_instance));
      CREATE INDEX execution_time_idx ON scheduled_tasks (execution_time);
      CREATE INDEX last_heartbeat_idx ON scheduled_tasks (last_heartbeat);
      """;

  private static final AtomicLong HANDLED = new AtomicLong();
  private static final OneTimeTask<String> NOTHING =
      Tasks.oneTime("nothing", String.class)
          .execute((instance, context) -> HANDLED.incrementAndGet());

  public static void main(String[] words) throws Exception {
    read(words);
    int jobs = number("--jobs");
    Map<String, Object> result = new LinkedHashMap<>();
    result.put("peer", "db-scheduler (Java)");
    result.put("version", version());
    int warmUp = number("--warm-up");
    if (warmUp > 0) {
      inDatabase(pool -> bulk(pool, warmUp));
      inDatabase(pool -> single(pool, 4, 1));
    }
    int seconds = number("--single-seconds");
    if (seconds > 0) {
      for (String callers : FLAGS.get("--callers").split(",")) {
        long rate = inDatabase(pool -> single(pool, Integer.parseInt(callers), seconds));
        result.put("single_" + callers + "_per_s", rate);
      }
    }
    if (jobs > 0) {
      result.putAll(inDatabase(pool -> bulk(pool, jobs)));
    }
    System.out.println(
        result.entrySet().stream()
            .map(entry -> "\"%s\": %s".formatted(entry.getKey(), json(entry.getValue())))
            .collect(Collectors.joining(", ", "{", "}")));
    System.exit(0);
  }

  private static void read(String[] words) {
    for (int at = 0; at < words.length; at += 2) {
      if (at + 1 == words.length || FLAGS.replace(words[at], words[at + 1]) == null) {
        throw new IllegalArgumentException(words[at] + ": the flags are " + FLAGS);
      }
    }
  }

  private static int number(String flag) {
    return Integer.parseInt(FLAGS.get(flag));
  }

  private static String json(Object value) {
    return value instanceof String ? "\"" + value + "\"" : value.toString();
  }

  private interface Work<T> {
    T with(HikariDataSource pool) throws Exception;
  }

  // Works on a database of its own in the server of the URL, with the library's table in it. It is
  // gone at the end, also after a signal.
  private static <T> T inDatabase(Work<T> work) throws Exception {
    URI url = URI.create(FLAGS.get("--url"));
    String name = "peer_java_" + ProcessHandle.current().pid();
    Thread drop = new Thread(() -> execute(url, "DROP DATABASE " + name + " WITH (FORCE)"));
    execute(url, "CREATE DATABASE " + name);
    Runtime.getRuntime().addShutdownHook(drop);
    HikariConfig config = new HikariConfig();
    config.setJdbcUrl(jdbc(url, name));
    config.setUsername(login(url)[0]);
    config.setPassword(login(url)[1]);
    config.setMaximumPoolSize(number("--connections"));
    try (HikariDataSource pool = new HikariDataSource(config)) {
      try (Connection connection = pool.getConnection()) {
        connection.createStatement().execute(SCHEMA);
      }
      return work.with(pool);
    } finally {
      Runtime.getRuntime().removeShutdownHook(drop);
      drop.run();
    }
  }

  private static void execute(URI url, String statement) {
    String database = url.getPath().substring(1);
    try (Connection server =
        DriverManager.getConnection(jdbc(url, database), login(url)[0], login(url)[1])) {
      server.createStatement().execute(statement);
    } catch (SQLException fault) {
      throw new IllegalStateException(statement, fault);
    }
  }

  private static String jdbc(URI url, String database) {
    int port = url.getPort() < 0 ? 5432 : url.getPort();
    return "jdbc:postgresql://%s:%d/%s?reWriteBatchedInserts=true"
        .formatted(url.getHost(), port, database);
  }

  private static String[] login(URI url) {
    String given = url.getUserInfo() == null ? System.getProperty("user.name") : url.getUserInfo();
    String[] parts = given.split(":", 2);
    return new String[] {parts[0], parts.length > 1 ? parts[1] : ""};
  }

  // How many jobs a second are stored that many callers submit one by one.
  private static long single(HikariDataSource pool, int callers, int seconds) throws Exception {
    SchedulerClient client = SchedulerClient.Builder.create(pool, NOTHING).build();
    AtomicLong ids = new AtomicLong();
    AtomicLong stored = new AtomicLong();
    long start = System.nanoTime();
    together(
        callers,
        () -> {
          while (System.nanoTime() - start < seconds * 1_000_000_000L) {
            if (!client.scheduleIfNotExists(instance(ids.getAndIncrement()), Instant.now())) {
              throw new IllegalStateException("a job was there already");
            }
            stored.incrementAndGet();
          }
          return null;
        });
    double took = secondsSince(start);
    long rows = count(pool);
    if (rows != stored.get()) {
      throw new IllegalStateException(stored + " jobs were submitted, the database has " + rows);
    }
    return Math.round(rows / took);
  }

  // How fast jobs are submitted in batches, and drained.
  private static Map<String, Object> bulk(HikariDataSource pool, int jobs) throws Exception {
    double submitted = submit(pool, jobs);
    long stored = count(pool);
    HANDLED.set(0);
    double drained = drain(pool, jobs);
    Map<String, Object> result = new LinkedHashMap<>();
    result.put("submit_per_s", Math.round(jobs / submitted));
    result.put("drain_per_s", Math.round(jobs / drained));
    result.put("stored", stored);
    result.put("done", stored - count(pool));
    return result;
  }

  // Adds all jobs, due at once, in batches. They are made beforehand.
  private static double submit(HikariDataSource pool, int jobs) throws Exception {
    SchedulerClient client = SchedulerClient.Builder.create(pool, NOTHING).build();
    int size = Math.max(1, number("--batch"));
    ConcurrentLinkedQueue<List<TaskInstance<?>>> batches = new ConcurrentLinkedQueue<>();
    for (int from = 0; from < jobs; from += size) {
      List<TaskInstance<?>> batch = new ArrayList<>(size);
      for (int id = from; id < Math.min(from + size, jobs); id++) {
        batch.add(instance(id));
      }
      batches.add(batch);
    }
    long start = System.nanoTime();
    together(
        number("--submitters"),
        () -> {
          for (var batch = batches.poll(); batch != null; batch = batches.poll()) {
            client.scheduleBatch(batch, Instant.now());
            inTime(start, "adding jobs");
          }
          return null;
        });
    return secondsSince(start);
  }

  // How many seconds one scheduler takes until no job is left in the table.
  private static double drain(HikariDataSource pool, int jobs) throws Exception {
    Scheduler scheduler =
        Scheduler.create(pool, NOTHING)
            .threads(number("--threads"))
            .pollUsingLockAndFetch(number("--low-limit"), number("--high-limit"))
            .pollingInterval(Duration.ofMillis(number("--poll-ms")))
            .shutdownMaxWait(Duration.ofSeconds(10))
            .build();
    long start = System.nanoTime();
    scheduler.start();
    try {
      // The table is only asked once the tasks have run: counting it costs the database.
      while (HANDLED.get() < jobs || count(pool) > 0) {
        inTime(start, HANDLED + " of " + jobs + " jobs");
        Thread.sleep(5);
      }
      return secondsSince(start);
    } finally {
      scheduler.stop();
    }
  }

  private static void together(int count, Callable<Void> work) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(count);
    try {
      List<Future<Void>> all = new ArrayList<>();
      for (int index = 0; index < count; index++) {
        all.add(threads.submit(work));
      }
      for (Future<Void> one : all) {
        one.get();
      }
    } finally {
      threads.shutdownNow();
    }
  }

  private static TaskInstance<String> instance(long id) {
    return NOTHING.instance(Long.toString(id), payload(id));
  }

  private static long count(HikariDataSource pool) throws SQLException {
    try (Connection connection = pool.getConnection();
        var rows = connection.createStatement().executeQuery("SELECT count(*) FROM scheduled_tasks")) {
      rows.next();
      return rows.getLong(1);
    }
  }

  // JSON of the size that is wanted, with digits that do not compress.
  private static String payload(long number) {
    int wanted = Math.max(0, number("--payload") - "{\"data\":\"\"}".length());
    StringBuilder digits = new StringBuilder(wanted + 16);
    long seed = (number + 1) * 0x9e3779b97f4a7c15L;
    while (digits.length() < wanted) {
      seed ^= seed << 13;
      seed ^= seed >>> 7;
      seed ^= seed << 17;
      String word = Long.toHexString(seed);
      digits.append("0".repeat(16 - word.length())).append(word);
    }
    digits.setLength(wanted);
    return "{\"data\":\"" + digits + "\"}";
  }

  private static void inTime(long start, String what) {
    if (secondsSince(start) > number("--patience")) {
      throw new IllegalStateException(what + ": that took too long");
    }
  }

  private static double secondsSince(long start) {
    return (System.nanoTime() - start) / 1e9;
  }

  // The version of the library, from the name of its file.
  private static String version() {
    String file = Scheduler.class.getProtectionDomain().getCodeSource().getLocation().getPath();
    return file.replaceAll(".*/db-scheduler-|\\.jar$", "");
  }
}
