//! Prints the permissions of recycle-eks in the cluster: `terraform/rbac/recycle-eks.yaml`.
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

fn main() {
    print!("{}", recycle::reference::permissions::render_manifest());
}
