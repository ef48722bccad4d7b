//! The program `tidegate`.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Parser as _;
use tidegate::config::{Cli, Command, LogFormat, ServeOptions};
use tidegate::server::{Server, StartError};
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;
use tracing_subscriber::EnvFilter;

/// Batches of many megabytes come and go while a snapshot is taken: this allocator keeps their pages, where the C
/// library's gives each back to the kernel and faults it in again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let Cli { command: Command::Serve(options) } = Cli::parse();
    if let Err(error) = start_log(&options) {
        eprintln!("tidegate: {error}");
        return ExitCode::from(2);
    }
    // Sockets and signals only: sessions, queries and captures have runtimes of their own.
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("connections")
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("tidegate: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(serve(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error with what caused it, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

fn start_log(options: &ServeOptions) -> Result<(), String> {
    let filter = EnvFilter::try_new(&options.log_filter).map_err(|error| format!("invalid log filter: {error}"))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match options.log {
        LogFormat::Json => log.json().init(),
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
    }
    Ok(())
}

async fn serve(options: ServeOptions) -> Result<(), StartError> {
    // Installed first, so that a signal during the start is an orderly end too.
    let mut terminate = signal(SignalKind::terminate()).map_err(StartError::Runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(StartError::Runtime)?;
    let server = Server::start(options).await?;
    println!("{}", server.greeting());
    let reason = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    info!(reason, "stopping");
    tokio::select! {
        () = server.stop() => info!("stopped"),
        _ = interrupt.recv() => info!("stopped at once, on a second signal"),
    }
    Ok(())
}
