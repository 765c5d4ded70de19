//! Tells Cargo that the page and the add-ins are part of the program: a new build of `dashboards/web` or `addins`
//! makes a new `relserve`.

fn main() {
    println!("cargo::rerun-if-changed=../dashboards/web/dist");
    println!("cargo::rerun-if-changed=../addins/dist");
}
