//! The binary of the command line.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    recycle_eks::run(std::env::args_os()).await.code().into()
}
