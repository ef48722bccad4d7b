//! The seam to whatever runs the capture jobs.

use async_trait::async_trait;
use tidegate_cdc::capture::CaptureHandle;
use tidegate_cdc::source::definition::SourceDefinition;
use uuid::Uuid;

/// Starts, stops and finds capture jobs. A job that failed keeps its handle, and with it its status.
#[async_trait]
pub trait Jobs: Send + Sync {
    /// Starts capturing, and returns at once. Starting a source that runs is no change.
    fn start(&self, definition: SourceDefinition);

    /// Stops a source's job at its next checkpoint, and forgets its handle.
    async fn stop(&self, source: Uuid);

    fn handle(&self, source: Uuid) -> Option<CaptureHandle>;

    fn handles(&self) -> Vec<CaptureHandle>;
}
