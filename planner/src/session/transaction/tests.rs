use super::*;

fn tag(outcome: &Outcome) -> (&str, usize) {
    match outcome {
        Outcome::Command { tag, notices } => (tag, notices.len()),
        Outcome::Rows { .. } => panic!("rows"),
    }
}

fn fresh() -> (Transaction, Settings) {
    (Transaction::default(), Settings::new("u", "app"))
}

#[test]
fn blocks_open_fail_and_end() {
    let (mut transaction, mut settings) = fresh();
    assert_eq!(transaction.status(), TransactionStatus::Idle);
    transaction.fail();
    assert_eq!(transaction.status(), TransactionStatus::Idle, "outside a block nothing fails for long");
    assert_eq!(tag(&transaction.begin(&settings)), ("BEGIN", 0));
    assert_eq!(tag(&transaction.begin(&settings)), ("BEGIN", 1));
    transaction.fail();
    assert_eq!(transaction.status(), TransactionStatus::Failed);
    assert_eq!(tag(&transaction.commit(&mut settings)), ("ROLLBACK", 0));
    assert_eq!(tag(&transaction.commit(&mut settings)), ("COMMIT", 1));
    assert_eq!(tag(&transaction.rollback(&mut settings)), ("ROLLBACK", 1));
    assert_eq!(transaction.status(), TransactionStatus::Idle);
}

#[test]
fn savepoints_nest_and_heal() {
    let (mut transaction, mut settings) = fresh();
    assert_eq!(transaction.savepoint("a", &settings).unwrap_err().sqlstate, "25P01");
    transaction.begin(&settings);
    transaction.savepoint("a", &settings).unwrap();
    transaction.savepoint("b", &settings).unwrap();
    transaction.fail();
    transaction.rollback_to("a", &mut settings).unwrap();
    assert_eq!(transaction.status(), TransactionStatus::InTransaction);
    assert_eq!(transaction.rollback_to("b", &mut settings).unwrap_err().sqlstate, "3B001");
    transaction.rollback_to("a", &mut settings).unwrap();
    transaction.release("a").unwrap();
    assert_eq!(transaction.release("a").unwrap_err().sqlstate, "3B001");
}

#[test]
fn the_newest_savepoint_of_a_name_is_meant() {
    let (mut transaction, mut settings) = fresh();
    transaction.begin(&settings);
    transaction.savepoint("a", &settings).unwrap();
    settings.set("application_name", "two").unwrap();
    transaction.savepoint("a", &settings).unwrap();
    settings.set("application_name", "three").unwrap();
    transaction.rollback_to("a", &mut settings).unwrap();
    assert_eq!(settings.get("application_name"), Some("two"));
    transaction.release("a").unwrap();
    transaction.rollback_to("a", &mut settings).unwrap();
    assert_eq!(settings.get("application_name"), Some("app"));
}

#[test]
fn settings_follow_the_transaction() {
    let (mut transaction, mut settings) = fresh();
    transaction.begin(&settings);
    settings.set("application_name", "inside").unwrap();
    transaction.rollback(&mut settings);
    assert_eq!(settings.get("application_name"), Some("app"));

    transaction.begin(&settings);
    settings.set("application_name", "inside").unwrap();
    transaction.note_local("timezone", settings.get("timezone").map(str::to_owned));
    settings.set("timezone", "Europe/Berlin").unwrap();
    transaction.note_local("app.user", None);
    settings.set("app.user", "7").unwrap();
    transaction.commit(&mut settings);
    assert_eq!(settings.get("application_name"), Some("inside"));
    assert_eq!(settings.get("timezone"), Some("UTC"));
    assert_eq!(settings.get("app.user"), None);

    transaction.begin(&settings);
    settings.set("application_name", "lost").unwrap();
    transaction.fail();
    transaction.commit(&mut settings);
    assert_eq!(settings.get("application_name"), Some("inside"));
}
