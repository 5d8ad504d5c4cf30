//! Starts the Lambda `serve-operator`. The library has its logic.

use serve_operator::ServeOperator;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    let cluster = lambda::read_cluster_name(lambda::variable)?;
    let server = ServeOperator::new(&lambda::configure().await, &cluster);
    lambda::serve(|request| server.handle(request)).await
}
