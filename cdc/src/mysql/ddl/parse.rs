//! Statements and the clauses of `ALTER TABLE` (MySQL manual 15.1.9, MariaDB's `ALTER TABLE` page).

use super::tokens::{Token, tokenize};

/// A table as a statement names it; the database is the session's where the statement gives none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableName {
    pub(crate) database: String,
    pub(crate) table: String,
}

/// What a logged statement does to tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Statement {
    Alter {
        table: TableName,
        clauses: Vec<Clause>,
    },
    Rename(Vec<(TableName, TableName)>),
    Truncate(TableName),
    Drop(Vec<TableName>),
    DropDatabase(String),
    Create(TableName),
    /// Rows changed by a statement instead of row events.
    Dml {
        verb: &'static str,
        names: Vec<String>,
    },
    /// Cannot change the columns or rows of a table.
    Irrelevant,
    /// May concern a table, and was not understood. Holds every name in it, to see whether a captured table is meant.
    NotUnderstood {
        names: Vec<String>,
    },
}

/// One clause of `ALTER TABLE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Clause {
    AddColumn {
        column: ColumnDef,
        place: ColumnPlace,
        if_not_exists: bool,
    },
    DropColumn {
        name: String,
        if_exists: bool,
    },
    RenameColumn {
        from: String,
        to: String,
    },
    /// `CHANGE` and `MODIFY`; the latter keeps the name.
    ChangeColumn {
        from: String,
        column: ColumnDef,
        place: Option<ColumnPlace>,
        if_exists: bool,
    },
    RenameTable(TableName),
    /// `CONVERT TO CHARACTER SET`: stored text is written anew.
    ConvertCharset,
    /// The primary key is added, dropped or replaced.
    PrimaryKey,
    /// Rows vanish or come without being logged, by a partition operation or by `ALTER IGNORE TABLE`.
    PartitionRows,
    /// The rows of a partition were swapped with those of this table, without a row event.
    ExchangedWith(TableName),
    /// Indexes, options, defaults: neither columns nor stored values change.
    Harmless,
}

/// Where a column goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ColumnPlace {
    Last,
    First,
    After(String),
}

/// The default of a column definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DefaultValue {
    /// None given.
    Absent,
    Null,
    Constant(String),
    /// An expression, `CURRENT_TIMESTAMP` included.
    Expression,
}

/// A column definition, its type in the form of `information_schema.columns.column_type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ColumnDef {
    pub(crate) name: String,
    pub(crate) column_type: String,
    pub(crate) charset: Option<String>,
    pub(crate) collation: Option<String>,
    pub(crate) not_null: bool,
    pub(crate) default: DefaultValue,
    pub(crate) generated: bool,
    pub(crate) auto_increment: bool,
    pub(crate) primary_key: bool,
    pub(crate) invisible: bool,
    pub(crate) comment: Option<String>,
}

/// Reads one logged statement; `database` is the session's default.
pub(crate) fn parse(sql: &str, database: &str) -> Statement {
    let Some(tokens) = tokenize(sql) else {
        // Not closed quotes: names cannot be told apart, so anything that looks like one counts.
        let names = sql.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect();
        return Statement::NotUnderstood { names };
    };
    let mut reader = Reader { tokens: &tokens, at: 0, database };
    let mut statement = reader.statement().unwrap_or_else(|| Statement::NotUnderstood { names: names(&tokens) });
    if let Statement::Dml { names, .. } | Statement::NotUnderstood { names } = &mut statement {
        names.push(database.to_owned());
    }
    statement
}

fn names(tokens: &[Token]) -> Vec<String> {
    tokens
        .iter()
        .filter_map(|t| match t {
            Token::Word(name) | Token::Quoted(name) => Some(name.clone()),
            Token::Text(_) | Token::Sign(_) => None,
        })
        .collect()
}

/// Statements that cannot change the columns or rows of a base table.
const HARMLESS_FIRST: &[&str] = &[
    "grant",
    "revoke",
    "set",
    "flush",
    "analyze",
    "optimize",
    "repair",
    "check",
    "use",
    "savepoint",
    "release",
    "install",
    "uninstall",
    "commit",
    "begin",
    "start",
    "call",
    "comment",
    "lock",
    "unlock",
    "rollback",
    "xa",
];
const HARMLESS_OBJECT: &[&str] = &[
    "user",
    "role",
    "view",
    "trigger",
    "procedure",
    "function",
    "event",
    "server",
    "index",
    "tablespace",
    "undo",
    "logfile",
    "resource",
    "spatial",
    "package",
    "sequence",
    "instance",
    "aggregate",
    "definer",
    "sql",
    "algorithm",
    "unique",
    "fulltext",
    "vector",
    "temporary",
    "database",
    "schema",
    "library",
];

pub(super) struct Reader<'a> {
    tokens: &'a [Token],
    pub(super) at: usize,
    database: &'a str,
}

impl Reader<'_> {
    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    pub(super) fn eat(&mut self, keyword: &str) -> bool {
        let found = self.peek().is_some_and(|t| t.is(keyword));
        self.at += usize::from(found);
        found
    }

    pub(super) fn eat_all(&mut self, keywords: &[&str]) -> bool {
        let found = keywords.iter().enumerate().all(|(i, k)| self.tokens.get(self.at + i).is_some_and(|t| t.is(k)));
        if found {
            self.at += keywords.len();
        }
        found
    }

    pub(super) fn eat_sign(&mut self, sign: char) -> bool {
        let found = self.peek().is_some_and(|t| t.is_sign(sign));
        self.at += usize::from(found);
        found
    }

    pub(super) fn word(&mut self) -> Option<String> {
        match self.peek() {
            Some(Token::Word(w)) => {
                let word = w.to_ascii_lowercase();
                self.at += 1;
                Some(word)
            }
            _ => None,
        }
    }

    /// A name, quoted or not.
    pub(super) fn name(&mut self) -> Option<String> {
        match self.peek() {
            Some(Token::Word(n) | Token::Quoted(n) | Token::Text(n)) => {
                let name = n.clone();
                self.at += 1;
                Some(name)
            }
            _ => None,
        }
    }

    pub(super) fn table_name(&mut self) -> Option<TableName> {
        let first = self.name()?;
        if self.eat_sign('.') {
            return Some(TableName { database: first, table: self.name()? });
        }
        Some(TableName { database: self.database.to_owned(), table: first })
    }

    fn if_exists(&mut self) -> bool {
        self.eat_all(&["if", "exists"])
    }

    fn statement(&mut self) -> Option<Statement> {
        // MariaDB logs `SET STATEMENT x = y FOR ALTER TABLE …` as written.
        if self.eat_all(&["set", "statement"]) {
            while !self.eat("for") {
                self.peek()?;
                self.at += 1;
            }
        }
        let verb = self.word().unwrap_or_default();
        match verb.as_str() {
            "alter" => self.alter(),
            "rename" if self.eat("table") || self.eat("tables") => self.rename(),
            "rename" => Some(Statement::Irrelevant),
            "truncate" => {
                self.eat("table");
                self.if_exists();
                Some(Statement::Truncate(self.table_name()?))
            }
            "drop" => self.drop(),
            "create" => self.create(),
            "insert" => Some(Statement::Dml { verb: "INSERT", names: names(self.tokens) }),
            "update" => Some(Statement::Dml { verb: "UPDATE", names: names(self.tokens) }),
            "delete" => Some(Statement::Dml { verb: "DELETE", names: names(self.tokens) }),
            "replace" => Some(Statement::Dml { verb: "REPLACE", names: names(self.tokens) }),
            "load" => Some(Statement::Dml { verb: "LOAD DATA", names: names(self.tokens) }),
            // An empty statement, or comments alone.
            "" if self.peek().is_none() => Some(Statement::Irrelevant),
            first if HARMLESS_FIRST.contains(&first) => Some(Statement::Irrelevant),
            _ => None,
        }
    }

    fn rename(&mut self) -> Option<Statement> {
        self.if_exists();
        let mut pairs = Vec::new();
        loop {
            let from = self.table_name()?;
            // MariaDB: RENAME TABLE t WAIT n TO u.
            if self.eat("wait") {
                self.word()?;
            }
            self.eat("nowait");
            if !self.eat("to") {
                return None;
            }
            pairs.push((from, self.table_name()?));
            if !self.eat_sign(',') {
                return Some(Statement::Rename(pairs));
            }
        }
    }

    fn drop(&mut self) -> Option<Statement> {
        if self.eat("temporary") {
            return Some(Statement::Irrelevant);
        }
        if self.eat("table") || self.eat("tables") {
            self.if_exists();
            let mut tables = vec![self.table_name()?];
            while self.eat_sign(',') {
                tables.push(self.table_name()?);
            }
            return Some(Statement::Drop(tables));
        }
        if self.eat("database") || self.eat("schema") {
            self.if_exists();
            return Some(Statement::DropDatabase(self.name()?));
        }
        let object = self.word()?;
        HARMLESS_OBJECT.contains(&object.as_str()).then_some(Statement::Irrelevant)
    }

    fn create(&mut self) -> Option<Statement> {
        let replaces = self.eat_all(&["or", "replace"]);
        if self.eat("table") {
            self.eat_all(&["if", "not", "exists"]);
            let table = self.table_name()?;
            // What had the name is dropped with its rows.
            return Some(if replaces { Statement::Drop(vec![table]) } else { Statement::Create(table) });
        }
        let object = self.word()?;
        HARMLESS_OBJECT.contains(&object.as_str()).then_some(Statement::Irrelevant)
    }

    fn alter(&mut self) -> Option<Statement> {
        self.eat("online");
        // Rows that a new unique key refuses are deleted without being logged.
        let ignores = self.eat("ignore");
        if !self.eat("table") {
            let object = self.word()?;
            return HARMLESS_OBJECT.contains(&object.as_str()).then_some(Statement::Irrelevant);
        }
        self.if_exists();
        let table = self.table_name()?;
        if self.eat("wait") {
            self.word()?;
        }
        self.eat("nowait");
        let mut clauses = Vec::new();
        if ignores {
            clauses.push(Clause::PartitionRows);
        }
        while self.peek().is_some() {
            self.clause(&mut clauses)?;
            // Clauses are separated by commas; partition options and table options may follow without one.
            self.eat_sign(',');
        }
        Some(Statement::Alter { table, clauses })
    }

    fn clause(&mut self, out: &mut Vec<Clause>) -> Option<()> {
        let verb = self.word()?;
        match verb.as_str() {
            "add" => self.add_clause(out),
            "drop" => self.drop_clause(out),
            "rename" => self.rename_clause(out),
            "change" | "modify" => self.change_clause(verb == "change", out),
            "alter" => {
                // ALTER [COLUMN] c SET DEFAULT …, ALTER INDEX i VISIBLE, ALTER CHECK/CONSTRAINT …
                out.push(Clause::Harmless);
                self.skip_clause()
            }
            "convert" => {
                out.push(Clause::ConvertCharset);
                self.skip_clause()
            }
            "exchange" => {
                out.push(Clause::PartitionRows);
                while !self.eat_all(&["with", "table"]) {
                    self.peek()?;
                    self.at += 1;
                }
                out.push(Clause::ExchangedWith(self.table_name()?));
                self.at = self.tokens.len();
                Some(())
            }
            "truncate" | "discard" | "import" | "coalesce" | "reorganize" | "remove" | "rebuild" | "partition" => {
                // COALESCE, REORGANIZE, REMOVE, REBUILD and PARTITION BY move rows but keep them.
                let keeps = matches!(verb.as_str(), "coalesce" | "reorganize" | "remove" | "rebuild" | "partition");
                out.push(if keeps { Clause::Harmless } else { Clause::PartitionRows });
                self.at = self.tokens.len();
                Some(())
            }
            "order"
            | "enable"
            | "disable"
            | "force"
            | "with"
            | "without"
            | "analyze"
            | "check"
            | "optimize"
            | "repair"
            | "validation"
            | "default"
            | "engine"
            | "auto_increment"
            | "avg_row_length"
            | "character"
            | "charset"
            | "checksum"
            | "collate"
            | "comment"
            | "compression"
            | "connection"
            | "data"
            | "index"
            | "delay_key_write"
            | "encryption"
            | "insert_method"
            | "key_block_size"
            | "max_rows"
            | "min_rows"
            | "pack_keys"
            | "password"
            | "row_format"
            | "secondary_load"
            | "secondary_unload"
            | "secondary_engine"
            | "stats_auto_recalc"
            | "stats_persistent"
            | "stats_sample_pages"
            | "tablespace"
            | "union"
            | "algorithm"
            | "lock"
            | "page_compressed"
            | "page_compression_level"
            | "transactional"
            | "encrypted"
            | "encryption_key_id"
            | "page_checksum"
            | "autoextend_size"
            | "engine_attribute"
            | "secondary_engine_attribute"
            | "storage"
            | "start"
            | "sequence"
            | "itef_quotes" => {
                out.push(Clause::Harmless);
                self.skip_clause()
            }
            _ => None,
        }
    }

    /// Skips to the next comma outside parentheses.
    fn skip_clause(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        while let Some(token) = self.peek() {
            match token {
                Token::Sign('(') => depth += 1,
                Token::Sign(')') => depth = depth.checked_sub(1)?,
                Token::Sign(',') if depth == 0 => return Some(()),
                _ => {}
            }
            self.at += 1;
        }
        (depth == 0).then_some(())
    }

    /// Skips a parenthesised group, the opening parenthesis being next.
    pub(super) fn skip_group(&mut self) -> Option<()> {
        if !self.eat_sign('(') {
            return None;
        }
        let mut depth = 1_usize;
        while depth > 0 {
            match self.peek()? {
                Token::Sign('(') => depth += 1,
                Token::Sign(')') => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
        Some(())
    }

    fn add_clause(&mut self, out: &mut Vec<Clause>) -> Option<()> {
        const KEYS: &[&str] =
            &["index", "key", "unique", "fulltext", "spatial", "foreign", "check", "vector", "period", "system"];
        if self.eat("partition") {
            out.push(Clause::Harmless);
            self.at = self.tokens.len();
            return Some(());
        }
        if self.eat("constraint") {
            let named =
                self.peek().is_some_and(|t| !t.is("primary") && !t.is("unique") && !t.is("foreign") && !t.is("check"));
            if named {
                self.name()?;
            }
            out.push(if self.eat_all(&["primary", "key"]) { Clause::PrimaryKey } else { Clause::Harmless });
            return self.skip_clause();
        }
        if self.eat_all(&["primary", "key"]) {
            out.push(Clause::PrimaryKey);
            return self.skip_clause();
        }
        let explicit = self.eat("column");
        if !explicit && self.peek().is_some_and(|t| KEYS.iter().any(|k| t.is(k))) {
            out.push(Clause::Harmless);
            return self.skip_clause();
        }
        let if_not_exists = self.eat_all(&["if", "not", "exists"]);
        if self.eat_sign('(') {
            loop {
                if self.peek().is_some_and(|t| t.is("constraint") || KEYS.iter().any(|k| t.is(k))) {
                    out.push(Clause::Harmless);
                    self.skip_group_item()?;
                } else if self.eat_all(&["primary", "key"]) {
                    out.push(Clause::PrimaryKey);
                    self.skip_group_item()?;
                } else {
                    let column = self.column()?;
                    out.push(Clause::AddColumn { column, place: ColumnPlace::Last, if_not_exists });
                }
                if self.eat_sign(',') {
                    continue;
                }
                return self.eat_sign(')').then_some(());
            }
        }
        let column = self.column()?;
        let place = self.place()?.unwrap_or(ColumnPlace::Last);
        out.push(Clause::AddColumn { column, place, if_not_exists });
        Some(())
    }

    /// Skips to the comma or closing parenthesis that ends an item of a group.
    fn skip_group_item(&mut self) -> Option<()> {
        loop {
            match self.peek()? {
                Token::Sign('(') => self.skip_group()?,
                Token::Sign(',' | ')') => return Some(()),
                _ => self.at += 1,
            }
        }
    }

    fn drop_clause(&mut self, out: &mut Vec<Clause>) -> Option<()> {
        if self.eat_all(&["primary", "key"]) {
            out.push(Clause::PrimaryKey);
            return Some(());
        }
        if self.eat("partition") {
            out.push(Clause::PartitionRows);
            self.at = self.tokens.len();
            return Some(());
        }
        let keyed = ["index", "key", "foreign", "check", "constraint", "period", "system"].iter().any(|k| {
            // `DROP key` alone may drop a column of that name; a key's name follows the word otherwise.
            self.peek().is_some_and(|t| t.is(k)) && self.tokens.get(self.at + 1).is_some_and(|t| !t.is_sign(','))
        });
        if keyed {
            // DROP CONSTRAINT may drop the primary key under its fixed name.
            let primary = self
                .tokens
                .get(self.at + 1)
                .is_some_and(|t| matches!(t, Token::Word(n) | Token::Quoted(n) if n.eq_ignore_ascii_case("primary")));
            out.push(if primary { Clause::PrimaryKey } else { Clause::Harmless });
            return self.skip_clause();
        }
        self.eat("column");
        let if_exists = self.if_exists();
        let name = self.name()?;
        let _ = self.eat("restrict") || self.eat("cascade");
        out.push(Clause::DropColumn { name, if_exists });
        Some(())
    }

    fn rename_clause(&mut self, out: &mut Vec<Clause>) -> Option<()> {
        if self.eat("column") {
            self.if_exists();
            let from = self.name()?;
            if !self.eat("to") {
                return None;
            }
            out.push(Clause::RenameColumn { from, to: self.name()? });
            return Some(());
        }
        if self.peek()?.is("index") || self.peek()?.is("key") {
            out.push(Clause::Harmless);
            return self.skip_clause();
        }
        let _ = self.eat("to") || self.eat("as") || self.eat_sign('=');
        out.push(Clause::RenameTable(self.table_name()?));
        Some(())
    }

    fn change_clause(&mut self, renames: bool, out: &mut Vec<Clause>) -> Option<()> {
        self.eat("column");
        let if_exists = self.if_exists();
        let from = if renames { Some(self.name()?) } else { None };
        let column = self.column()?;
        let place = self.place()?;
        let from = from.unwrap_or_else(|| column.name.clone());
        out.push(Clause::ChangeColumn { from, column, place, if_exists });
        Some(())
    }

    /// `FIRST` or `AFTER c`; then the clause has to be over.
    fn place(&mut self) -> Option<Option<ColumnPlace>> {
        let place = if self.eat("first") {
            Some(ColumnPlace::First)
        } else if self.eat("after") {
            Some(ColumnPlace::After(self.name()?))
        } else {
            None
        };
        match self.peek() {
            None | Some(Token::Sign(',')) => Some(place),
            _ => None,
        }
    }
}
