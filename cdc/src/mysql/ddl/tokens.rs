//! Tokens of a MySQL statement: comments removed, versioned comments (`/*!50100 … */`) opened.

/// One token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A bare word or number, as written.
    Word(String),
    /// An identifier in backticks (or double quotes, which ANSI_QUOTES allows), unquoted.
    Quoted(String),
    /// A string literal, unescaped.
    Text(String),
    /// Any other single character.
    Sign(char),
}

impl Token {
    /// Whether this is the given bare keyword.
    pub(super) fn is(&self, keyword: &str) -> bool {
        matches!(self, Self::Word(w) if w.eq_ignore_ascii_case(keyword))
    }

    pub(super) fn is_sign(&self, sign: char) -> bool {
        matches!(self, Self::Sign(c) if *c == sign)
    }
}

/// Splits a statement. `None` when a quote or comment is not closed.
pub(super) fn tokenize(sql: &str) -> Option<Vec<Token>> {
    let chars: Vec<char> = sql.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    let mut open_versioned = 0_usize;
    while let Some(&c) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        match c {
            _ if c.is_whitespace() => at += 1,
            '#' => at = line_end(&chars, at),
            '-' if next == Some('-') && chars.get(at + 2).is_none_or(|c| c.is_whitespace()) => {
                at = line_end(&chars, at);
            }
            '/' if next == Some('*') => {
                let versioned = match (chars.get(at + 2), chars.get(at + 3)) {
                    (Some('!'), _) => Some(at + 3),
                    (Some('M'), Some('!')) => Some(at + 4),
                    _ => None,
                };
                if let Some(mut inside) = versioned {
                    while chars.get(inside).is_some_and(char::is_ascii_digit) {
                        inside += 1;
                    }
                    open_versioned += 1;
                    at = inside;
                } else {
                    at = comment_end(&chars, at + 2)?;
                }
            }
            '*' if next == Some('/') && open_versioned > 0 => {
                open_versioned -= 1;
                at += 2;
            }
            '`' | '"' => {
                let (text, end) = quoted(&chars, at, c, false)?;
                // Without ANSI_QUOTES a double-quoted token is a string. Where a name is expected both are accepted,
                // and a default or comment in double quotes is read by the same rule from either kind.
                tokens.push(if c == '`' { Token::Quoted(text) } else { Token::Text(text) });
                at = end;
            }
            '\'' => {
                let (text, end) = quoted(&chars, at, c, true)?;
                tokens.push(Token::Text(text));
                at = end;
            }
            _ if is_word(c) => {
                let start = at;
                while chars.get(at).copied().is_some_and(is_word) {
                    at += 1;
                }
                tokens.push(Token::Word(chars.get(start..at)?.iter().collect()));
            }
            _ => {
                tokens.push(Token::Sign(c));
                at += 1;
            }
        }
    }
    Some(tokens)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$' || c == '@'
}

fn line_end(chars: &[char], from: usize) -> usize {
    chars.iter().skip(from).position(|c| *c == '\n').map_or(chars.len(), |n| from + n + 1)
}

fn comment_end(chars: &[char], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        match (chars.get(at)?, chars.get(at + 1)) {
            ('*', Some('/')) => return Some(at + 2),
            _ => at += 1,
        }
    }
}

/// Reads a quoted token from its opening quote: the text and the place behind the closing quote.
fn quoted(chars: &[char], open: usize, quote: char, escapes: bool) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut at = open + 1;
    loop {
        let c = *chars.get(at)?;
        if c == quote {
            if chars.get(at + 1) == Some(&quote) {
                text.push(quote);
                at += 2;
                continue;
            }
            return Some((text, at + 1));
        }
        if c == '\\' && (escapes || quote == '"') {
            let escaped = *chars.get(at + 1)?;
            text.push(match escaped {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                '0' => '\0',
                'b' => '\u{8}',
                'Z' => '\u{1a}',
                other => other,
            });
            at += 2;
            continue;
        }
        text.push(c);
        at += 1;
    }
}
