use std::time::Duration;

use super::*;

fn setting(name: &str, value: &str) -> OptionSetting {
    OptionSetting {
        name: name.to_owned(),
        name_position: 10,
        value: OptionValue::Text(value.to_owned()),
        value_position: 20,
    }
}

#[test]
fn names_fold_separators_and_case() {
    for name in ["server-id", "server.id", "SERVER_ID", "ServerId"] {
        assert_eq!(known(name).map(|option| option.name), Some("server-id"), "{name}");
    }
    assert_eq!(known("host").map(|option| option.name), Some("hostname"));
    assert_eq!(known("hst"), None);
}

#[test]
fn unknown_options_name_the_nearest() {
    for (name, nearest) in [
        ("hostnam", "hostname"),
        ("pasword", "password"),
        ("tabels", "tables"),
        ("heartbeat-intervall", "heartbeat.interval"),
        ("server_ids", "server-id"),
    ] {
        let error = check(&[setting(name, "1")], Place::Source).unwrap_err();
        assert_eq!(error.sqlstate, "42601");
        assert_eq!(error.hint.as_deref(), Some(format!("Did you mean \"{nearest}\"?").as_str()), "{name}");
        assert_eq!(error.position, Some(10));
    }
    let error = check(&[setting("qwertyuiop", "1")], Place::Source).unwrap_err();
    assert!(error.hint.unwrap().starts_with("The options are hostname, "));
}

#[test]
fn known_options_without_effect_are_refused_with_the_reason() {
    for name in [
        "debezium.binary.handling.mode",
        "jdbc.properties.useSSL",
        "server-time-zone",
        "SCAN_NEWLY_ADDED_TABLE_ENABLED",
    ] {
        let error = check(&[setting(name, "x")], Place::Source).unwrap_err();
        assert_eq!(error.sqlstate, "0A000", "{name}");
        assert!(error.hint.is_some(), "{name}");
    }
}

#[test]
fn no_refused_option_is_also_known() {
    for (name, reason) in REFUSED {
        assert!(known(name).is_none(), "{name}");
        assert!(reason.ends_with('.'), "{name}");
    }
}

#[test]
fn values_are_checked() {
    for (name, value) in [
        ("port", "3306"),
        ("port", "65535"),
        ("server-id", "5400-5500"),
        ("server-id", "1"),
        ("checkpoint.interval", "500ms"),
        ("memory", "256MiB"),
        ("ssl-mode", "REQUIRED"),
        ("scan.startup.mode", "initial"),
    ] {
        check(&[setting(name, value)], Place::Source).unwrap();
    }
    for (name, value) in [
        ("port", "0"),
        ("port", "65536"),
        ("port", "abc"),
        ("server-id", "0"),
        ("server-id", "10-5"),
        ("checkpoint.interval", "5"),
        ("checkpoint.interval", "5 parsecs"),
        ("memory", "much"),
        ("ssl-mode", "perhaps"),
        ("scan.startup.mode", "latest-offset"),
        ("hostname", " "),
    ] {
        let error = check(&[setting(name, value)], Place::Source).unwrap_err();
        assert_eq!((error.sqlstate, error.position), ("22023", Some(20)), "{name} = {value}");
    }
}

#[test]
fn options_stand_where_they_belong_and_once() {
    check(&[setting("tables", "a.b")], Place::Connection).unwrap_err();
    check(&[setting("hostname", "a")], Place::SourceOfConnection).unwrap_err();
    check(&[setting("tables", "a.b"), setting("hostname", "a")], Place::Source).unwrap();
    let twice = check(&[setting("host", "a"), setting("hostname", "a")], Place::Source).unwrap_err();
    assert_eq!(twice.message, "option \"hostname\" is given twice");
    let mut secret = setting("hostname", "");
    secret.value = OptionValue::Secret("s".to_owned());
    check(&[secret], Place::Source).unwrap_err();
}

#[test]
fn durations() {
    for (text, milliseconds) in [
        ("500ms", 500),
        ("1s", 1_000),
        ("2 hours", 7_200_000),
        ("1h30m", 5_400_000),
        ("1 hour 30 minutes", 5_400_000),
        ("1.5 s", 1_500),
        ("0s", 0),
        ("00:05:00", 300_000),
        (" 3 D ", 259_200_000),
    ] {
        assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
    }
    for text in ["", "5", "s", "-1s", "1 fortnight", "1..2s", "99999999999 days", "1:2", "00:61:00"] {
        parse_duration(text).unwrap_err();
    }
}

#[test]
fn bytes() {
    assert_eq!(parse_bytes("256MiB"), Some(256 << 20));
    assert_eq!(parse_bytes("1 gb"), Some(1 << 30));
    assert_eq!(parse_bytes("4096"), Some(4096));
    for text in ["", "MiB", "1.5GiB", "99999999999999999999", "18446744073709551615k"] {
        assert_eq!(parse_bytes(text), None, "{text}");
    }
}
