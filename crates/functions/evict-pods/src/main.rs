//! The Lambda function `evict-pods`.

use eks_auth::Access;
use recycle::contract::StepRequest;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_step::Error> {
    let cluster = eks_auth::read_cluster_name(|name| std::env::var(name).ok())?;
    let access = Access::new(&lambda_step::configure().await, &cluster);
    lambda_step::serve(|request: StepRequest| evict_pods::evict_pods(&access, request)).await
}
