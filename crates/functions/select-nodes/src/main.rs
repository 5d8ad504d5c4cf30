//! Starts the Lambda `select-nodes`. The library has its logic.

use select_nodes::{SelectNodes, read_most_at_once};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    let most_at_once = read_most_at_once(lambda::variable)?;
    let cluster = lambda::read_cluster_name(lambda::variable)?;
    let input_defaults = lambda::read_input_defaults(lambda::variable)?;
    let step = SelectNodes::new(&lambda::configure().await, &cluster, most_at_once, input_defaults);
    lambda::serve(|request| step.handle(request)).await
}
