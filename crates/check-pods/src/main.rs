//! The Lambda function `check-pods`.

use eks_auth::Access;
use recycle::contract::StepRequest;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_step::Error> {
    let access = Access::new(&lambda_step::configure().await);
    lambda_step::serve(|request: StepRequest| check_pods::check_pods(&access, request)).await
}
