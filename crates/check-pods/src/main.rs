//! The Lambda function `check-pods`.

use check_pods::{Outside, check_pods};
use eks_auth::Access;
use recycle::contract::StepRequest;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_step::Error> {
    let aws = lambda_step::configure().await;
    let (access, outside) = (Access::new(&aws), Outside::new(&aws));
    lambda_step::serve(|request: StepRequest| check_pods(&access, &outside, request)).await
}
