//! The simple query protocol: one message, any number of statements, everything as text.

use tidegate_planner::{Notice, Outcome, ParsedStatement, RowsTag, Session};
use tokio::runtime::Handle;

use super::encode::{Format, Style, columns, row_description};
use super::errors::notice_response;
use super::message::{Bare, bare, command_complete};
use super::output::Output;
use super::rows::{Cursor, Failure, Progress};
use super::session::{Backend, guarded, is_wanted, within};

impl Backend {
    /// Runs the statements of one message in order; the first that fails ends them.
    pub(super) async fn simple_query(&mut self, sql: &str) -> Result<(), Failure> {
        let armed = self.interrupt.arm();
        self.statements.remove("");
        self.portals.remove("");
        let statements = self.session.parse(sql)?;
        if statements.is_empty() {
            bare(self.output.buffer(), Bare::EmptyQuery);
        }
        for statement in &statements {
            let (timeout, style) = (self.statement_timeout(), self.style());
            let work = run(&self.queries, &mut self.session, statement, style, &mut self.output);
            let tag = guarded(&armed, timeout, &self.ends, work).await?;
            self.after_command(statement)?;
            command_complete(self.output.buffer(), &tag);
        }
        Ok(())
    }
}

/// Runs a statement and sends its rows; the command tag is left to the caller.
async fn run(
    queries: &Handle,
    session: &mut Session,
    statement: &ParsedStatement,
    style: Style,
    output: &mut Output,
) -> Result<String, Failure> {
    match within(queries, session.execute(statement, Vec::new())).await? {
        Outcome::Command { tag, notices } => {
            send_notices(session, &notices, output);
            Ok(tag)
        }
        Outcome::Rows { schema, stream, tag, notices } => {
            send_notices(session, &notices, output);
            let formats = vec![Format::Text; schema.fields().len()];
            let mut cursor = Cursor::new(queries, stream, columns(&schema, &formats), style);
            row_description(cursor.columns(), output.buffer());
            let rows = match cursor.send(0, output).await? {
                Progress::Finished { rows } => rows,
                Progress::Suspended => 0,
            };
            Ok(rows_tag(tag, rows))
        }
    }
}

pub(super) fn rows_tag(tag: RowsTag, rows: usize) -> String {
    tag.text(rows as u64)
}

pub(super) fn send_notices(session: &Session, notices: &[Notice], output: &mut Output) {
    let least = session.settings().get("client_min_messages");
    for notice in notices.iter().filter(|notice| is_wanted(notice.severity, least)) {
        notice_response(notice, output.buffer());
    }
}
