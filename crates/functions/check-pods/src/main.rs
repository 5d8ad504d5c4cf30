//! Starts the Lambda `check-pods`. The library has its logic.

use check_pods::{Outside, check_pods, read_cancels_refreshes};
use eks_auth::Access;
use recycle::contract::requests::StepRequest;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    let cluster = lambda::read_cluster_name(lambda::variable)?;
    let cancels_refreshes = read_cancels_refreshes(lambda::variable)?;
    let aws = lambda::configure().await;
    let access = Access::new(&aws, &cluster);
    let outside = Outside::new(&aws, access.clone(), cancels_refreshes);
    lambda::serve(|request: StepRequest| check_pods(&access, &outside, request)).await
}
