use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::definition::{Maker, secret_text, source_definition};
use super::sealing::{Entropy, Sealer};
use super::store::CatalogStore;
use super::*;
use crate::error::SqlError;
use crate::sql;
use crate::sql::statement::{CreateSource, Statement};

/// Different bytes each time, the same in each run.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Entropy for Counter {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), SqlError> {
        let number = self.0.fetch_add(1, Ordering::SeqCst).to_le_bytes();
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = number[at % 8];
        }
        Ok(())
    }
}

fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

fn secret(name: &str) -> SecretEntry {
    SecretEntry { id: Uuid::nil(), created_at_ms: 1, place: SecretPlace::Environment(name.to_owned()) }
}

fn parsed(text: &str) -> Statement {
    sql::parse(text).unwrap().remove(0).statement
}

fn create(text: &str) -> CreateSource {
    match parsed(text) {
        Statement::CreateSource(create) => create,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn changes_survive_and_each_makes_a_version() {
    let store = memory();
    let catalog = CatalogStore::open(store.clone()).await.unwrap();
    assert_eq!(*catalog.current(), Catalog::default());
    for name in ["a", "b"] {
        catalog.change(|catalog| Ok(catalog.secrets.insert(name.to_owned(), secret(name)))).await.unwrap();
    }
    // A change that changes nothing makes no version.
    catalog.change(|_| Ok(())).await.unwrap();
    catalog.change(|_| -> Result<(), _> { Err(SqlError::internal("refused")) }).await.unwrap_err();
    let reopened = CatalogStore::open(store.clone()).await.unwrap();
    assert_eq!(reopened.current(), catalog.current());
    assert_eq!(reopened.current().secrets.len(), 2);
    store.head(&Path::from("catalog/v-2")).await.unwrap();
    store.head(&Path::from("catalog/v-3")).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_changes_are_all_kept() {
    let store = memory();
    let mut tasks = Vec::new();
    for writer in 0..8 {
        let catalog = CatalogStore::open(store.clone()).await.unwrap();
        tasks.push(tokio::spawn(async move {
            for number in 0..5 {
                let name = format!("{writer}-{number}");
                catalog.change(|catalog| Ok(catalog.secrets.insert(name.clone(), secret(&name)))).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(CatalogStore::open(store).await.unwrap().current().secrets.len(), 40);
}

#[tokio::test]
async fn a_name_is_given_once_however_many_ask() {
    let store = memory();
    let first = CatalogStore::open(store.clone()).await.unwrap();
    let second = CatalogStore::open(store).await.unwrap();
    let insert = |catalog: &mut Catalog| {
        if catalog.secrets.contains_key("a") {
            return Err(SqlError::internal("exists"));
        }
        catalog.secrets.insert("a".to_owned(), secret("a"));
        Ok(())
    };
    first.change(insert).await.unwrap();
    // The second has not seen it yet, and must before it decides.
    second.change(insert).await.unwrap_err();
    assert_eq!(second.current().secrets.len(), 1);
}

#[tokio::test]
async fn a_damaged_object_is_an_error_that_names_it() {
    let store = memory();
    let catalog = CatalogStore::open(store.clone()).await.unwrap();
    catalog.change(|catalog| Ok(catalog.secrets.insert("a".to_owned(), secret("a")))).await.unwrap();
    let path = Path::from("catalog/v-1");
    let bytes = store.get(&path).await.unwrap().bytes().await.unwrap();
    let flipped = (0..8 * bytes.len()).map(|bit| {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        flipped
    });
    let others = [bytes[..bytes.len() - 1].to_vec(), Vec::new(), b"{}\n{}".to_vec()];
    for damaged in flipped.chain(others) {
        store.put(&path, Bytes::from(damaged).into()).await.unwrap();
        let error = CatalogStore::open(store.clone()).await.unwrap_err();
        assert_eq!(error.sqlstate, "XX001");
        assert!(error.message.contains("catalog/v-1"), "{}", error.message);
    }
}

#[test]
fn sealed_texts_open_with_their_key_and_purpose_alone() {
    let entropy = Counter::default();
    let sealer = Sealer::new(&[7; 32]);
    let sealed = sealer.seal("geheim", "password of a", &entropy).unwrap();
    assert_eq!(sealer.open(&sealed, "password of a").unwrap(), "geheim");
    sealer.open(&sealed, "password of b").unwrap_err();
    Sealer::new(&[8; 32]).open(&sealed, "password of a").unwrap_err();
    assert_ne!(sealer.seal("geheim", "password of a", &entropy).unwrap(), sealed);
    let stored = serde_json::to_string(&sealed).unwrap();
    assert!(!stored.contains("geheim") && !format!("{sealed:?}").contains("geheim"));
}

#[test]
fn the_key_file_is_made_once_and_for_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys/secret.key");
    let entropy = Counter::default();
    let first = Sealer::from_file(&path, &entropy).unwrap();
    let sealed = first.seal("x", "p", &entropy).unwrap();
    assert_eq!(Sealer::from_file(&path, &entropy).unwrap().open(&sealed, "p").unwrap(), "x");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    std::fs::write(&path, "not a key").unwrap();
    Sealer::from_file(&path, &entropy).unwrap_err();
}

#[test]
fn sources_become_definitions() {
    let sealer = Sealer::new(&[7; 32]);
    let entropy = Counter::default();
    let maker = Maker { sealer: &sealer, entropy: &entropy, now_ms: 5 };
    let mut catalog = Catalog::default();
    let Statement::CreateSecret(pw) = parsed("CREATE SECRET pw AS 'geheim'") else { panic!() };
    catalog.secrets.insert("pw".to_owned(), maker.secret(&pw).unwrap());
    assert_eq!(secret_text(&catalog, "pw", &sealer).unwrap(), "geheim");

    let text = "CREATE SOURCE shop WITH (connector = 'mysql-cdc', host = 'db1', user = 'cdc', password = SECRET pw,
        tables = 'shop.*, crm.customers', tables_exclude = 'shop.tmp', server_id = '5400-5402', checkpoint.interval = '250ms',
        memory = '64MiB') TABLES (shop.orders INTO s.o KEY (id))";
    let entry = maker.source(&create(text)).unwrap();
    let definition = source_definition(&catalog, "shop", &entry, &sealer).unwrap();
    assert_eq!((definition.connection.password.as_str(), definition.connection.port), ("geheim", 3306));
    assert_eq!(definition.tables.len(), 3);
    assert_eq!(definition.target_of("shop", "orders", false), Some(("s".to_owned(), "o".to_owned())));
    assert!(definition.matches("shop", "items", false) && definition.matches("crm", "customers", false));
    assert!(!definition.matches("shop", "tmp", false) && !definition.matches("crm", "other", false));
    assert_eq!(definition.options.checkpoint_interval.as_millis(), 250);
    assert_eq!(definition.options.memory_bytes, 64 << 20);

    catalog.secrets.clear();
    assert_eq!(source_definition(&catalog, "shop", &entry, &sealer).unwrap_err().sqlstate, "42704");
}

#[test]
fn expressions_of_names_match_as_in_flink_cdc() {
    let sealer = Sealer::new(&[7; 32]);
    let maker = Maker { sealer: &sealer, entropy: &Counter::default(), now_ms: 5 };
    let text = "CREATE SOURCE s WITH (connector = 'mysql-cdc', hostname = 'h', username = 'u',
        database-name = 'shop_[0-9]+', table-name = 'orders|items')";
    let entry = maker.source(&create(text)).unwrap();
    let definition = source_definition(&Catalog::default(), "s", &entry, &sealer).unwrap();
    assert!(definition.matches("shop_12", "orders", false) && definition.matches("shop_1", "items", false));
    assert!(!definition.matches("shop_", "orders", false) && !definition.matches("shop_1", "orders2", false));
}

#[test]
fn statements_that_contradict_themselves() {
    let sealer = Sealer::new(&[7; 32]);
    let maker = Maker { sealer: &sealer, entropy: &Counter::default(), now_ms: 5 };
    let base = "connector = 'mysql-cdc', hostname = 'h', username = 'u'";
    for text in [
        format!("CREATE SOURCE s WITH ({base})"),
        format!("CREATE SOURCE s WITH ({base}, database-name = 'a')"),
        format!("CREATE SOURCE s WITH ({base}, tables = 'a.b', database-name = 'a', table-name = 'b')"),
        "CREATE SOURCE s WITH (connector = 'mysql-cdc', hostname = 'h', tables = 'a.b')".to_owned(),
        "CREATE SOURCE s WITH (hostname = 'h', username = 'u', tables = 'a.b')".to_owned(),
        "CREATE SOURCE s FROM MYSQL CONNECTION c".to_owned(),
        "CREATE SOURCE s FROM MYSQL CONNECTION c FOR ALL TABLES WITH (tables = 'a.b')".to_owned(),
        "CREATE SOURCE s FROM MYSQL CONNECTION c FOR ALL TABLES WITH (password = 'x')".to_owned(),
    ] {
        let error = maker.source(&create(&text)).unwrap_err();
        assert_eq!(error.sqlstate, "42601", "{text}");
        assert!(error.position.is_some(), "{text}");
    }
}

#[test]
fn what_is_shown_makes_the_same_again_but_for_passwords() {
    let sealer = Sealer::new(&[7; 32]);
    let entropy = Counter::default();
    let maker = Maker { sealer: &sealer, entropy: &entropy, now_ms: 5 };
    for text in [
        "CREATE SOURCE \"My Shop\" WITH (connector = 'mysql-cdc', host = 'db''1', user = 'cdc', password = SECRET \"P w\", tables = 'shop.*')",
        "CREATE SOURCE s FROM MYSQL CONNECTION c FOR SCHEMAS (Shop, 'my db') WITH (buckets = 4)",
        "CREATE SOURCE s FROM MYSQL CONNECTION c FOR TABLES (shop.a AS x.\"Y\", shop.b) TABLES ('shop.c_\\.*' INTO shop.c KEY (Id))",
        "CREATE SOURCE s FROM MYSQL CONNECTION c FOR ALL TABLES",
        "CREATE SOURCE s WITH (connector = 'mysql-cdc', host = 'h', user = 'u') TABLES (shop.c INTO shop.d)",
    ] {
        let statement = create(text);
        let entry = maker.source(&statement).unwrap();
        let shown = create_source_text(&statement.name.value, &entry);
        let again = create(&shown);
        assert_eq!(again.name, statement.name);
        let mut remade = maker.source(&again).unwrap();
        remade.id = entry.id;
        assert_eq!(remade, entry, "{shown}");
    }
    let literal = create(
        "CREATE SOURCE s WITH (connector = 'mysql-cdc', host = 'h', user = 'u', password = 'geheim', tables = 'a.b')",
    );
    let entry = maker.source(&literal).unwrap();
    let shown = create_source_text("s", &entry);
    assert!(shown.contains("password = '***'") && !shown.contains("geheim"), "{shown}");
    assert!(!serde_json::to_string(&entry).unwrap().contains("geheim"));
    let definition = source_definition(&Catalog::default(), "s", &entry, &sealer).unwrap();
    assert_eq!(definition.connection.password, "geheim");
}

#[test]
fn a_table_has_one_source() {
    let sealer = Sealer::new(&[7; 32]);
    let maker = Maker { sealer: &sealer, entropy: &Counter::default(), now_ms: 5 };
    let mut entry = maker.source(&create("CREATE SOURCE a FROM MYSQL CONNECTION c FOR ALL TABLES")).unwrap();
    let target = |table: &str| ("shop".to_owned(), table.to_owned());
    entry.targets = vec![target("orders"), target("items")];
    let mut catalog = Catalog::default();
    catalog.sources.insert("a".to_owned(), entry);
    assert_eq!(catalog.taken(&[target("other"), target("items")]), Some(("a", &target("items"))));
    assert_eq!(catalog.taken(&[target("other"), ("crm".to_owned(), "items".to_owned())]), None);
}
