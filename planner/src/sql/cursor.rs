//! A reader over the tokens of one statement.

use std::time::Duration;

use sqlparser::tokenizer::Token;

use super::options::parse_duration;
use super::statement::Name;
use super::tokens::{Lexeme, Positions, identifier, is_word, string_value};
use crate::error::SqlError;

pub(super) struct Cursor<'a> {
    pub(super) positions: &'a Positions<'a>,
    lexemes: &'a [Lexeme],
    next: usize,
    /// The character behind the statement.
    end: usize,
}

impl<'a> Cursor<'a> {
    /// `lexemes` is not empty.
    pub(super) fn new(positions: &'a Positions<'a>, lexemes: &'a [Lexeme]) -> Self {
        let end = lexemes.last().map_or(0, |lexeme| lexeme.end);
        Self { positions, lexemes, next: 0, end }
    }

    pub(super) fn peek(&self) -> Option<&'a Lexeme> {
        self.lexemes.get(self.next)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<&'a Lexeme> {
        self.lexemes.get(self.next + ahead)
    }

    pub(super) fn advance(&mut self) -> Option<&'a Lexeme> {
        let lexeme = self.lexemes.get(self.next)?;
        self.next += 1;
        Some(lexeme)
    }

    pub(super) fn at_end(&self) -> bool {
        self.next >= self.lexemes.len()
    }

    /// 1-based position of the next token, or of the end.
    pub(super) fn position(&self) -> usize {
        self.peek().map_or(self.end, |lexeme| lexeme.start) + 1
    }

    /// The unquoted word `ahead` tokens from here, in capitals.
    pub(super) fn word_at(&self, ahead: usize) -> Option<String> {
        match &self.peek_at(ahead)?.token {
            Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_uppercase()),
            _ => None,
        }
    }

    pub(super) fn is_next(&self, word: &str) -> bool {
        self.peek().is_some_and(|lexeme| is_word(&lexeme.token, word))
    }

    /// Takes the words if all of them come next.
    pub(super) fn accept(&mut self, words: &[&str]) -> bool {
        let all = words
            .iter()
            .enumerate()
            .all(|(ahead, word)| self.peek_at(ahead).is_some_and(|lexeme| is_word(&lexeme.token, word)));
        if all {
            self.next += words.len();
        }
        all
    }

    pub(super) fn accept_token(&mut self, token: &Token) -> bool {
        let found = self.peek().is_some_and(|lexeme| lexeme.token == *token);
        if found {
            self.next += 1;
        }
        found
    }

    pub(super) fn expect(&mut self, words: &[&str]) -> Result<(), SqlError> {
        if self.accept(words) { Ok(()) } else { Err(self.unexpected(&words.join(" "))) }
    }

    pub(super) fn expect_token(&mut self, token: &Token) -> Result<(), SqlError> {
        if self.accept_token(token) { Ok(()) } else { Err(self.unexpected(&format!("\"{token}\""))) }
    }

    pub(super) fn expect_end(&self) -> Result<(), SqlError> {
        if self.at_end() { Ok(()) } else { Err(self.unexpected("the end of the statement")) }
    }

    /// PostgreSQL's syntax error at the next token, with what would have been right.
    pub(super) fn unexpected(&self, expected: &str) -> SqlError {
        let message = match self.peek() {
            Some(lexeme) => {
                format!("syntax error at or near \"{}\"", self.positions.slice(lexeme.start, lexeme.end))
            }
            None => "syntax error at end of input".to_owned(),
        };
        SqlError::syntax(message).with_detail(format!("Expected {expected}.")).at(self.position())
    }

    pub(super) fn name(&mut self, what: &str) -> Result<Name, SqlError> {
        let position = self.position();
        let value = self.peek().and_then(|lexeme| identifier(&lexeme.token)).ok_or_else(|| self.unexpected(what))?;
        self.next += 1;
        Ok(Name { value, position })
    }

    pub(super) fn string(&mut self, what: &str) -> Result<String, SqlError> {
        let value = self.peek().and_then(|lexeme| string_value(&lexeme.token)).ok_or_else(|| self.unexpected(what))?;
        self.next += 1;
        Ok(value.to_owned())
    }

    /// Tokens written without a blank between them, as written, as long as they are of the given kinds.
    pub(super) fn run_of(&mut self, what: &str, kind: impl Fn(&Token) -> bool) -> Result<&'a str, SqlError> {
        let first = self.peek().filter(|lexeme| kind(&lexeme.token)).ok_or_else(|| self.unexpected(what))?;
        let mut end = first.end;
        self.next += 1;
        while let Some(lexeme) = self.peek().filter(|lexeme| lexeme.start == end && kind(&lexeme.token)) {
            end = lexeme.end;
            self.next += 1;
        }
        Ok(self.positions.slice(first.start, end))
    }

    /// `(item, …)`, at least one.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, SqlError>,
    ) -> Result<Vec<T>, SqlError> {
        self.expect_token(&Token::LParen)?;
        let mut items = vec![item(self)?];
        while self.accept_token(&Token::Comma) {
            items.push(item(self)?);
        }
        if self.accept_token(&Token::RParen) { Ok(items) } else { Err(self.unexpected("\",\" or \")\"")) }
    }

    pub(super) fn number(&mut self, what: &str) -> Result<u64, SqlError> {
        let number = match self.peek().map(|lexeme| &lexeme.token) {
            Some(Token::Number(digits, _)) => digits.parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| self.unexpected(what))?;
        self.next += 1;
        Ok(number)
    }

    /// `'2 hours'`, `INTERVAL '2 hours'` or `30s`.
    pub(super) fn interval(&mut self) -> Result<Duration, SqlError> {
        self.accept(&["INTERVAL"]);
        let position = self.position();
        let text = match self.peek().and_then(|lexeme| string_value(&lexeme.token)) {
            Some(_) => self.string("an interval")?,
            None => self
                .run_of("an interval such as '2 hours'", |token| matches!(token, Token::Number(..) | Token::Word(_)))?
                .to_owned(),
        };
        parse_duration(&text).map_err(|reason| {
            SqlError::new(
                crate::error::sqlstate::INVALID_DATETIME_FORMAT,
                format!("invalid interval \"{text}\": {reason}"),
            )
            .with_hint("Write a number and a unit: '500ms', '30s', '2 hours'.")
            .at(position)
        })
    }
}
