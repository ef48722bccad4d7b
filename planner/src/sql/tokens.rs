//! Tokens with character positions, on sqlparser's tokenizer in its PostgreSQL dialect.

use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::tokenizer::{Location, Token, Tokenizer};

use crate::error::SqlError;

/// A token that means something (no blanks, no comments), and the characters it spans, counted from 0.
#[derive(Debug, Clone)]
pub(super) struct Lexeme {
    pub(super) token: Token,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Maps the tokenizer's lines and columns to characters of the text, and back to its bytes.
pub(crate) struct Positions<'a> {
    text: &'a str,
    /// The character each line begins at.
    lines: Vec<usize>,
    length: usize,
}

impl<'a> Positions<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut lines = vec![0];
        let mut length = 0;
        for c in text.chars() {
            length += 1;
            if c == '\n' {
                lines.push(length);
            }
        }
        Self { text, lines, length }
    }

    /// The character (from 0) at a line and column (both from 1), `None` if the location is the empty one.
    pub(crate) fn character(&self, location: Location) -> Option<usize> {
        let line = usize::try_from(location.line).ok()?.checked_sub(1)?;
        let column = usize::try_from(location.column).ok()?.checked_sub(1)?;
        Some((self.lines.get(line)? + column).min(self.length))
    }

    /// The text between two characters.
    pub(crate) fn slice(&self, start: usize, end: usize) -> &'a str {
        let byte = |character: usize| self.text.char_indices().nth(character).map_or(self.text.len(), |(byte, _)| byte);
        self.text.get(byte(start)..byte(end)).unwrap_or_default()
    }
}

/// Cuts a text into tokens. Positions in errors count from 1.
pub(super) fn tokenize(positions: &Positions<'_>) -> Result<Vec<Lexeme>, SqlError> {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, positions.text).tokenize_with_location().map_err(|error| {
        let error_at = positions.character(error.location).unwrap_or(positions.length);
        let message = error.message.to_lowercase();
        SqlError::syntax(if message.contains("unterminated") {
            format!("{} at or near \"{}\"", message, first_line(positions.slice(error_at, positions.length)))
        } else {
            format!("syntax error: {}", error.message)
        })
        .at(error_at + 1)
    })?;
    let mut lexemes = Vec::with_capacity(tokens.len());
    for token in tokens {
        if matches!(token.token, Token::Whitespace(_) | Token::EOF) {
            continue;
        }
        let start = positions.character(token.span.start).unwrap_or(positions.length);
        let end = positions.character(token.span.end).unwrap_or(positions.length);
        lexemes.push(Lexeme { token: token.token, start, end });
    }
    Ok(lexemes)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(40).collect()
}

/// The text of a string literal of any form.
pub(super) fn string_value(token: &Token) -> Option<&str> {
    match token {
        Token::SingleQuotedString(value)
        | Token::EscapedStringLiteral(value)
        | Token::NationalStringLiteral(value)
        | Token::UnicodeStringLiteral(value) => Some(value),
        Token::DollarQuotedString(quoted) => Some(&quoted.value),
        _ => None,
    }
}

/// The name an identifier stands for: folded to lower case unless quoted.
pub(super) fn identifier(token: &Token) -> Option<String> {
    match token {
        Token::Word(word) if word.quote_style.is_some() => Some(word.value.clone()),
        Token::Word(word) => Some(word.value.to_lowercase()),
        Token::DoubleQuotedString(value) => Some(value.clone()),
        _ => None,
    }
}

/// Whether a token is this word, unquoted, in any case.
pub(super) fn is_word(token: &Token, expected: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected))
}

/// The first place (from 0) where a name stands as a word, in any case; not inside of strings and comments. A name with dots is found as it is written.
pub(crate) fn find_word(text: &str, name: &str) -> Option<usize> {
    let positions = Positions::new(text);
    let lexemes = tokenize(&positions).ok()?;
    let wanted: Vec<&str> = name.split('.').collect();
    let is_part = |lexeme: &Lexeme, part: &str| match &lexeme.token {
        Token::Word(word) => word.value.eq_ignore_ascii_case(part),
        _ => false,
    };
    lexemes.iter().enumerate().find_map(|(at, first)| {
        let matches = wanted.iter().enumerate().all(|(index, part)| {
            let word = lexemes.get(at + 2 * index).is_some_and(|lexeme| is_part(lexeme, part));
            let dot = index == 0 || lexemes.get(at + 2 * index - 1).is_some_and(|lexeme| lexeme.token == Token::Period);
            word && dot
        });
        matches.then_some(first.start)
    })
}
