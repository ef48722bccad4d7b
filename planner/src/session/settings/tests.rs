use super::*;

fn settings() -> Settings {
    Settings::new("ada", "psql")
}

#[test]
fn values_are_checked_and_brought_into_form() {
    let mut settings = settings();
    for (name, value, expected) in [
        ("DateStyle", "iso, dmy", "ISO, DMY"),
        ("datestyle", "ISO", "ISO, MDY"),
        ("extra_float_digits", "3", "3"),
        ("statement_timeout", "5s", "5000"),
        ("statement_timeout", "250", "250"),
        ("client_encoding", "utf-8", "UTF8"),
        ("standard_conforming_strings", "on", "on"),
        ("TimeZone", "Europe/Berlin", "Europe/Berlin"),
        ("timezone", "utc", "UTC"),
        ("timezone", "-7", "-07:00"),
        ("timezone", "+05:30", "+05:30"),
        ("client_min_messages", "WARNING", "warning"),
        ("default_transaction_isolation", "SERIALIZABLE", "serializable"),
        ("my.own", "x", "x"),
    ] {
        settings.set(name, value).unwrap_or_else(|error| panic!("{name} = {value}: {error}"));
        assert_eq!(settings.get(name), Some(expected), "{name} = {value}");
    }
    for (name, value, state) in [
        ("extra_float_digits", "9", "22023"),
        ("timezone", "Mars/Olympus", "22023"),
        ("client_min_messages", "loud", "22023"),
        ("statement_timeout", "soon", "22023"),
        ("client_encoding", "LATIN1", "0A000"),
        ("standard_conforming_strings", "off", "0A000"),
        ("DateStyle", "German", "0A000"),
        ("server_version", "17", "55P02"),
        ("checkpoint", "1287", "0A000"),
        ("nonsense", "1", "42704"),
    ] {
        assert_eq!(settings.set(name, value).unwrap_err().sqlstate, state, "{name} = {value}");
    }
    let error = settings.set("serch_path", "x").unwrap_err();
    assert_eq!(error.hint.as_deref(), Some("Did you mean \"search_path\"?"));
}

#[test]
fn resetting_goes_back_to_the_start_of_the_connection() {
    let mut settings = settings();
    settings.set_at_start("timezone", "Europe/Berlin").unwrap();
    settings.set_at_start("some_other_server_s", "1").unwrap();
    assert_eq!(settings.set_at_start("client_encoding", "LATIN1").unwrap_err().sqlstate, "0A000");
    settings.set("timezone", "UTC").unwrap();
    settings.set("my.own", "x").unwrap();
    settings.reset("timezone").unwrap();
    assert_eq!(settings.get("timezone"), Some("Europe/Berlin"));
    assert_eq!(settings.get("application_name"), Some("psql"));
    settings.reset_all();
    assert_eq!(settings.get("my.own"), None);
    assert_eq!(settings.reset("server_version").unwrap_err().sqlstate, "55P02");
    assert_eq!(settings.reset("nonsense").unwrap_err().sqlstate, "42704");
}

#[test]
fn showing_uses_the_protocol_s_spelling() {
    let settings = settings();
    assert_eq!(settings.show("timezone").unwrap(), ("TimeZone".to_owned(), "UTC".to_owned()));
    assert_eq!(settings.show("SESSION_AUTHORIZATION").unwrap().1, "ada");
    assert_eq!(settings.show("nonsense").unwrap_err().sqlstate, "42704");
    let reported: Vec<_> = settings.reported().into_iter().map(|(name, _)| name).collect();
    for name in [
        "server_version",
        "client_encoding",
        "DateStyle",
        "TimeZone",
        "integer_datetimes",
        "standard_conforming_strings",
    ] {
        assert!(reported.contains(&name), "{name}");
    }
}

#[test]
fn search_paths_are_names() {
    let mut settings = settings();
    assert_eq!(settings.search_path("ada"), ["ada", "public"]);
    settings.set("search_path", "Shop, \"My DB\" ,").unwrap();
    assert_eq!(settings.search_path("ada"), ["shop", "My DB"]);
}

#[test]
fn timeouts_of_zero_are_none() {
    let mut settings = settings();
    assert_eq!(settings.timeout("statement_timeout"), None);
    settings.set("statement_timeout", "1min").unwrap();
    assert_eq!(settings.timeout("statement_timeout"), Some(Duration::from_secs(60)));
}
