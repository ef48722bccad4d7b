//! Column definitions: what follows a column's name.

use super::parse::{ColumnDef, DefaultValue, Reader};
use super::tokens::Token;

impl Reader<'_> {
    /// A column's name, type and attributes.
    pub(super) fn column(&mut self) -> Option<ColumnDef> {
        let name = self.name()?;
        let mut column = ColumnDef {
            name,
            column_type: String::new(),
            charset: None,
            collation: None,
            not_null: false,
            default: DefaultValue::Absent,
            generated: false,
            auto_increment: false,
            primary_key: false,
            invisible: false,
            comment: None,
        };
        self.column_type(&mut column)?;
        loop {
            let Some(token) = self.peek() else { return Some(column) };
            let Token::Word(word) = token else {
                return (token.is_sign(',') || token.is_sign(')')).then_some(column);
            };
            match word.to_ascii_lowercase().as_str() {
                "first" | "after" => return Some(column),
                "not" => {
                    self.at += 1;
                    if self.eat("null") {
                        column.not_null = true;
                    } else if !self.eat("secondary") {
                        // NOT ENFORCED belongs to a check.
                        self.eat("enforced").then_some(())?;
                    }
                }
                "null" => {
                    self.at += 1;
                    column.not_null = false;
                }
                "default" => {
                    self.at += 1;
                    column.default = self.default_value()?;
                }
                "on" => {
                    // ON UPDATE CURRENT_TIMESTAMP(n)
                    self.at += 2;
                    self.word()?;
                    if self.peek().is_some_and(|t| t.is_sign('(')) {
                        self.skip_group()?;
                    }
                }
                "auto_increment" => {
                    self.at += 1;
                    column.auto_increment = true;
                }
                "primary" => {
                    self.at += 1;
                    self.eat("key");
                    column.primary_key = true;
                }
                "unique" => {
                    self.at += 1;
                    self.eat("key");
                }
                "key" => {
                    self.at += 1;
                    column.primary_key = true;
                }
                "comment" => {
                    self.at += 1;
                    self.eat_sign('=');
                    column.comment = Some(self.name()?);
                }
                "collate" => {
                    self.at += 1;
                    self.eat_sign('=');
                    column.collation = Some(self.name()?.to_ascii_lowercase());
                }
                "charset" => {
                    self.at += 1;
                    column.charset = Some(self.name()?.to_ascii_lowercase());
                }
                "character" => {
                    self.at += 2;
                    column.charset = Some(self.name()?.to_ascii_lowercase());
                }
                "generated" => {
                    self.at += 1;
                    self.eat("always").then_some(())?;
                }
                "as" => {
                    self.at += 1;
                    self.skip_group()?;
                    column.generated = true;
                }
                "virtual" | "stored" | "persistent" | "visible" | "enforced" => self.at += 1,
                "invisible" => {
                    self.at += 1;
                    column.invisible = true;
                }
                "column_format" | "storage" | "srid" | "ref_system_id" => {
                    self.at += 1;
                    self.eat_sign('=');
                    self.name()?;
                }
                "check" => {
                    self.at += 1;
                    self.skip_group()?;
                }
                "constraint" => {
                    self.at += 1;
                    if !self.peek()?.is("check") {
                        self.name()?;
                    }
                }
                "references" => {
                    self.skip_reference()?;
                }
                "compressed" => return None,
                _ => return None,
            }
        }
    }

    fn skip_reference(&mut self) -> Option<()> {
        self.at += 1;
        self.table_name()?;
        self.skip_group()?;
        loop {
            if self.eat("match") {
                self.word()?;
            } else if self.eat("on") {
                self.word()?;
                let action = self.word()?;
                if action == "set" || action == "no" {
                    self.word()?;
                }
            } else {
                return Some(());
            }
        }
    }

    fn default_value(&mut self) -> Option<DefaultValue> {
        let negative = self.eat_sign('-');
        let _ = !negative && self.eat_sign('+');
        match self.peek()?.clone() {
            Token::Sign('(') => {
                self.skip_group()?;
                Some(DefaultValue::Expression)
            }
            Token::Text(text) => {
                self.at += 1;
                Some(DefaultValue::Constant(text))
            }
            Token::Word(word) => {
                self.at += 1;
                let lower = word.to_ascii_lowercase();
                if lower == "null" {
                    return Some(DefaultValue::Null);
                }
                if word.starts_with(|c: char| c.is_ascii_digit()) || self.peek().is_some_and(|t| t.is_sign('.')) {
                    let mut number = if negative { format!("-{word}") } else { word };
                    if self.eat_sign('.') {
                        number.push('.');
                        if let Some(Token::Word(fraction)) = self.peek() {
                            number.push_str(fraction);
                            self.at += 1;
                        }
                    }
                    return Some(DefaultValue::Constant(number));
                }
                // b'01', x'ff', _utf8mb4'text', n'text'
                if let Some(Token::Text(text)) = self.peek() {
                    let constant = DefaultValue::Constant(format!("{lower}'{text}'"));
                    self.at += 1;
                    return Some(constant);
                }
                if matches!(lower.as_str(), "true" | "false") {
                    return Some(DefaultValue::Constant(u8::from(lower == "true").to_string()));
                }
                if self.peek().is_some_and(|t| t.is_sign('(')) {
                    self.skip_group()?;
                }
                Some(DefaultValue::Expression)
            }
            Token::Sign('.') => {
                self.at += 1;
                let digits = self.word()?;
                Some(DefaultValue::Constant(format!("{}0.{digits}", if negative { "-" } else { "" })))
            }
            _ => None,
        }
    }
}
