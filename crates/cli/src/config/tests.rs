//! Where settings come from, and what is said of wrong ones.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    serve: ServeArgs,
}

fn args(line: &str) -> ServeArgs {
    Line::try_parse_from(format!("serve {line}").split_whitespace()).ok().unwrap().serve
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn nothing_set_is_the_defaults() {
    assert_eq!(load(&args(""), |_| None), Ok(ServeConfig::default()));
    assert_eq!(load(&args(""), |_| Some(String::new())), Ok(ServeConfig::default()));
    assert_eq!(ServeConfig::default().listen.to_string(), LISTEN_DEFAULT);
}

/// The texts in `--help` name the defaults; they must not drift from the constants.
#[test]
fn help_names_the_real_defaults() {
    use clap::CommandFactory;
    let help = Line::command().render_long_help().to_string();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let [history, min_interval] =
        [HISTORY_MS_DEFAULT, SCHEDULE_INTERVAL_MS_MIN_DEFAULT].map(tidewheel_core::time::format_duration);
    for default in [
        DATA_DEFAULT.to_owned(),
        LISTEN_DEFAULT.to_owned(),
        PUSH_CONCURRENCY_COUNT_DEFAULT.to_string(),
        PUSH_PER_HOST_COUNT_DEFAULT.to_string(),
        history,
        min_interval,
        CATCH_UP_JOBS_PER_S_DEFAULT.to_string(),
        TENANT_CATCH_UP_JOBS_PER_S_DEFAULT.to_string(),
        format!("{}s", DRAIN_DEFAULT.as_secs()),
        LOG_LEVEL_DEFAULT.to_owned(),
    ] {
        assert!(help.contains(&format!("[default: {default}]")), "{default}");
    }
}

#[test]
fn flags_stand_above_environment_above_file() {
    let file = file(
        "push_per_host = 1\npush_concurrency = 1\ndrain = 90\nallow_target = [\"10.0.0.0/8\", \"::1/128\"]\n",
    );
    let env = |name: &str| match name {
        "TIDEWHEEL_CONFIG" => Some(file.path().display().to_string()),
        "TIDEWHEEL_PUSH_PER_HOST" | "TIDEWHEEL_PUSH_CONCURRENCY" => Some("2".to_owned()),
        _ => None,
    };
    let config = load(
        &args("--push-per-host 3 --history 90d --min-interval 1s --tenant-catch-up-rate 7 --log-format json"),
        env,
    )
    .unwrap();
    assert_eq!((config.push_per_host, config.push_concurrency, config.drain.as_secs()), (3, 2, 90));
    assert_eq!(config.allow_targets.len(), 2);
    assert_eq!((config.history_ms, config.min_interval_ms), (90 * 86_400_000, 1_000));
    assert_eq!(config.tenant_catch_up_jobs_per_s, 7);
    assert_eq!(config.log_format, LogFormat::Json);
}

#[test]
fn levels_are_words_or_by_module() {
    for text in ["info", "WARN", "off", "info,tidewheel_server=debug", "warn,tidewheel_server[{id}]=trace"] {
        assert!(load(&args(&format!("--log-level {text}")), |_| None).is_ok(), "{text}");
    }
    for text in ["loud", "info,loud", "a=loud"] {
        assert!(load(&args(&format!("--log-level {text}")), |_| None).is_err(), "{text}");
    }
}

#[test]
fn a_list_in_the_environment_has_commas() {
    let env = |name: &str| (name == "TIDEWHEEL_ALLOW_TARGET").then(|| "10.0.0.0/8, 127.0.0.1".to_owned());
    assert_eq!(load(&args(""), env).unwrap().allow_targets.len(), 2);
}

#[test]
fn every_fault_is_told_at_once_with_its_place() {
    let file = file("push_per_hots = 1\nlisten = true\nhistory = \"1h\"\n");
    let env = |name: &str| (name == "TIDEWHEEL_PUSH_CONCURRENCY").then(|| "0".to_owned());
    let line =
        format!("--config {} --drain soon --allow-target 10.0.0.1/8 --log-level loud", file.path().display());
    let text = load(&args(&line), env).unwrap_err();
    for part in [
        "the configuration has 7 faults",
        "there is no key \"push_per_hots\"; the nearest is push_per_host",
        "listen: expected a text or a number",
        "history: 1h is not between 1d and 3653d",
        "TIDEWHEEL_PUSH_CONCURRENCY: \"0\" is not a whole number from 1 to 65536",
        "--drain: \"soon\" is not a duration",
        "--allow-target: `10.0.0.1/8` has address bits past its prefix",
        "--log-level: \"loud\" is not a level",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn a_broken_or_missing_file_is_a_fault() {
    let text = load(&args("--config /nonexistent/x.toml --drain x"), |_| None).unwrap_err();
    assert!(text.contains("2 faults") && text.contains("/nonexistent/x.toml: No such file"), "{text}");
    let file = file("listen = \n");
    let text = load(&args(&format!("--config {}", file.path().display())), |_| None).unwrap_err();
    assert!(text.contains("one fault") && text.contains("line 1"), "{text}");
}

#[test]
fn only_loopback_is_listened_on() {
    for text in ["127.0.0.1:0", "127.9.9.9:80", "[::1]:7400", "[::ffff:127.0.0.1]:1"] {
        assert!(load(&args(&format!("--listen {text}")), |_| None).is_ok(), "{text}");
    }
    for text in ["0.0.0.0:7400", "[::]:7400", "10.0.0.1:7400"] {
        let fault = load(&args(&format!("--listen {text}")), |_| None).unwrap_err();
        assert!(fault.contains("needs keys"), "{fault}");
    }
    assert!(load(&args("--listen 7400"), |_| None).unwrap_err().contains("write it like 127.0.0.1:7400"));
}

#[test]
fn rates_and_breakers_are_set_everywhere_alike() {
    let file =
        file("breaker_failures = 7\nbreaker_cooldown = \"2s\"\nhost_rate = [\"50\", \"a.example=5\"]\n");
    let path = format!("--config {} --breaker-cooldown-max 1m", file.path().display());
    let config = load(&args(&path), |_| None).unwrap();
    let breaker = config.breaker;
    assert_eq!((breaker.failures, breaker.cooldown_ms, breaker.cooldown_ms_max), (7, 2_000, 60_000));
    assert_eq!(
        (config.host_rates.of("http://b.example"), config.host_rates.of("http://a.example")),
        (Some(50), Some(5))
    );
    let env = |name: &str| (name == "TIDEWHEEL_HOST_RATE").then(|| "9, a.example=3".to_owned());
    assert_eq!(load(&args(""), env).unwrap().host_rates.of("http://a.example:80"), Some(3));
    let text = load(&args("--host-rate much --breaker-failures few"), |_| None).unwrap_err();
    assert!(text.contains("--host-rate: \"much\"") && text.contains("2 faults"), "{text}");
}
