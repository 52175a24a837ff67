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
        BreakerConfig::default().failures.to_string(),
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
fn traces_go_by_the_usual_variables_too_and_by_our_own_above_them() {
    let usual = |name: &str| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("http://otel:4318".to_owned()),
        "OTEL_EXPORTER_OTLP_HEADERS" => Some("x-key=a%20b, x-team=ops".to_owned()),
        "OTEL_SERVICE_NAME" => Some("shop".to_owned()),
        "OTEL_TRACES_SAMPLER_ARG" => Some("0.25".to_owned()),
        _ => None,
    };
    let config = load(&args(""), usual).unwrap();
    assert_eq!(config.otlp_endpoint.unwrap().to_string(), "http://otel:4318/v1/traces");
    assert_eq!((&config.otlp_headers["x-key"], config.otlp_headers.len()), (&"a b".parse().unwrap(), 2));
    assert_eq!((config.otlp_service_name.as_str(), config.otlp_sample_ratio), ("shop", 0.25));
    let own = |name: &str| (name == "TIDEWHEEL_OTLP_ENDPOINT").then(|| "http://own:1".to_owned());
    let config = load(&args(""), |name| own(name).or_else(|| usual(name))).unwrap();
    assert_eq!(config.otlp_endpoint.unwrap().to_string(), "http://own:1/v1/traces");
    let wrong = load(&args("--otlp-endpoint nowhere --otlp-sample-ratio 2 --otlp-headers key"), |_| None);
    let wrong = wrong.unwrap_err();
    for part in ["3 faults", "--otlp-endpoint: \"nowhere\" is not", "from 0 to 1", "name=value"] {
        assert!(wrong.contains(part), "{wrong}");
    }
}

#[test]
fn what_may_be_secret_comes_from_files_of_its_own() {
    let secret = file("api-key=hush%20hush\nx-team=ops\n");
    let good = file(&format!("otlp_headers_file = \"{}\"\n", secret.path().display()));
    let config = load(&args(&format!("--config {}", good.path().display())), |_| None).unwrap();
    assert_eq!(config.otlp_headers["api-key"], "hush hush");
    assert_eq!(config.otlp_headers["x-team"], "ops");
    for text in ["otlp_headers = \"api-key=hush\"\n", "store = \"postgres://u:hush@h/d\"\n"] {
        let bad = file(text);
        let fault = load(&args(&format!("--config {}", bad.path().display())), |_| None).unwrap_err();
        assert!(fault.contains("this is no place for one") && !fault.contains("hush"), "{fault}");
    }
    let fault = load(&args("--otlp-headers-file /nowhere/x"), |_| None).unwrap_err();
    assert!(fault.contains("/nowhere/x"), "{fault}");
}

#[test]
fn rates_and_breakers_are_set_everywhere_alike() {
    let file = file(
        "breaker_failures = 7\nbreaker_percent = 60\nbreaker_window = \"5s\"\nbreaker_cooldown = \"2s\"\n\
         host_rate = [\"50\", \"a.example=5\"]\npush_per_host = [\"32\", \"a.example=4\"]\n",
    );
    let path = format!("--config {} --breaker-cooldown-max 1m", file.path().display());
    let config = load(&args(&path), |_| None).unwrap();
    let breaker = config.breaker;
    assert_eq!((breaker.failures, breaker.cooldown_ms, breaker.cooldown_ms_max), (7, 2_000, 60_000));
    assert_eq!((breaker.percent, breaker.lately_ms), (60, 5_000));
    assert_eq!((config.push_per_host, config.push_per_host_named.of("http://a.example:80")), (32, Some(4)));
    assert_eq!(config.push_per_host_named.of("http://b.example"), None);
    assert_eq!(
        (config.host_rates.of("http://b.example"), config.host_rates.of("http://a.example")),
        (Some(50), Some(5))
    );
    let env = |name: &str| (name == "TIDEWHEEL_HOST_RATE").then(|| "9, a.example=3".to_owned());
    assert_eq!(load(&args(""), env).unwrap().host_rates.of("http://a.example:80"), Some(3));
    let text = load(&args("--host-rate much --breaker-failures few"), |_| None).unwrap_err();
    assert!(text.contains("--host-rate: \"much\"") && text.contains("2 faults"), "{text}");
}

#[test]
fn what_belongs_together_is_asked_for_together() {
    for (line, says) in [
        ("--tls-cert c", "--tls-cert: it needs --tls-key"),
        ("--tls-key k", "--tls-key: it needs --tls-cert"),
        ("--tls-client-ca a", "it needs --tls-cert and --tls-key"),
        ("--tls-cert c --tls-key k --tls-client-optional", "it needs --tls-client-ca"),
        ("--oidc-issuer https://i", "tokens need --oidc-issuer, --oidc-audience"),
        ("--oidc-issuer https://i --oidc-audience a --oidc-jwks-url http://i/keys", "anybody on the way"),
        (
            "--oidc-issuer https://i --oidc-audience a --oidc-jwks-url https://i/k --oidc-keys-file f",
            "one of them",
        ),
        ("--store postgres://a/b --store-file f", "one of them is enough"),
        ("--store-file /nonexistent", "--store-file: /nonexistent: No such file"),
    ] {
        let fault = load(&args(line), |_| None).unwrap_err();
        assert!(fault.contains("one fault") && fault.contains(says), "{line}: {fault}");
    }
    let config = load(&args("--tls-cert c --tls-key k --tls-client-ca a --tls-client-optional"), |_| None);
    let tls = config.unwrap().tls.unwrap();
    assert_eq!(tls.clients, tidewheel_server::tls::ClientCertificates::Optional("a".into()));
    let config =
        "--listen 0.0.0.0:1 --oidc-issuer https://i --oidc-audience a --oidc-jwks-url https://i/keys";
    assert!(load(&args(config), |_| None).unwrap().oidc.is_some(), "tokens close a server as keys do");
}

#[test]
fn a_password_belongs_in_a_file_of_its_own() {
    let secret = file("postgres://t:hunter2@db/t\n");
    let line = format!("--store-file {}", secret.path().display());
    assert_eq!(load(&args(&line), |_| None).unwrap().store.as_deref(), Some("postgres://t:hunter2@db/t"));
    for url in ["postgres://t:hunter2@db/t", "postgres://t@db/t?password=hunter2"] {
        let config = file(&format!("store = {url:?}\n"));
        let fault = load(&args(&format!("--config {}", config.path().display())), |_| None).unwrap_err();
        assert!(fault.contains("store_file") && !fault.contains("hunter2"), "{fault}");
        assert!(load(&args(&format!("--store {url}")), |_| None).is_ok());
    }
    let config = file("store = \"postgres://t@db:5432/t\"\ntls_client_optional = \"x\"\n");
    let fault = load(&args(&format!("--config {}", config.path().display())), |_| None).unwrap_err();
    assert!(fault.contains("neither true nor false") && fault.contains("one fault"), "{fault}");
}
