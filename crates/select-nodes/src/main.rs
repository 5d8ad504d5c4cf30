//! The Lambda function `select-nodes`; see the library.

use select_nodes::SelectNodes;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_step::Error> {
    let step = SelectNodes::new(&lambda_step::configure().await);
    lambda_step::serve(|request| step.handle(request)).await
}
