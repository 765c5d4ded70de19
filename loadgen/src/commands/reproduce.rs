//! `loadgen reproduce`: the paper's figures in virtual time.

use loadgen::Error;
use loadgen::reproduce::page::markdown;
use loadgen::reproduce::{Scope, reproduce};

use super::print;
use crate::cli::ReproduceArguments;

pub(super) fn perform(arguments: &ReproduceArguments) -> Result<bool, Error> {
    let scope = if arguments.smoke { Scope::smoke() } else { Scope::paper() };
    let figures = reproduce(&scope, &arguments.out)?;
    print(&markdown(&figures));
    print(&format!("\n{}\n", arguments.out.join("reproduction.html").display()));
    Ok(true)
}
