//! The Lambda function `detach-terminate`; see the library.

use detach_terminate::DetachTerminate;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_step::Error> {
    let step = DetachTerminate::new(&lambda_step::configure().await);
    lambda_step::serve(|request| step.handle(request)).await
}
