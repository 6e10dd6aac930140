//! The command line of ostree-ext, the library with which bootc and rpm-ostree pull and deploy images.

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(ostree_ext::cli::run_from_iter(std::env::args_os()))
}
