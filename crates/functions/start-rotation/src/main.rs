//! Starts the Lambda `start-rotation`. The library has its logic.

use start_rotation::{StartRotation, read_settings};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    let settings = read_settings(lambda::variable)?;
    let function = StartRotation::new(settings, &lambda::configure().await);
    lambda::serve(|request| function.handle(request)).await
}
