//! Starts the Lambda `evict-pods`. The library has its logic.

use eks_auth::Access;
use recycle::contract::requests::StepRequest;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    let cluster = lambda::read_cluster_name(lambda::variable)?;
    let access = Access::new(&lambda::configure().await, &cluster);
    lambda::serve(|request: StepRequest| evict_pods::evict_pods(&access, request)).await
}
