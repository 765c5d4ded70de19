//! Tells Cargo that the page is part of the program: a new build of `dashboards/web` makes a new `relserve`.

fn main() {
    println!("cargo::rerun-if-changed=../dashboards/web/dist");
}
