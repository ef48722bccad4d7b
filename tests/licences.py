#!/usr/bin/env python3
"""Checks every dependency against deny.toml: an allowed licence, no banned crate, no source beside the registry."""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

root = pathlib.Path(__file__).resolve().parent.parent
rules = tomllib.loads((root / "deny.toml").read_text())
allowed = set(rules["licenses"]["allow"])
banned = {entry["crate"] for entry in rules["bans"]["deny"]}


def permitted(expression):
    """Evaluates an SPDX expression; `WITH` exceptions only ever widen a licence."""
    words = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))
    at = 0

    def term():
        nonlocal at
        word = words[at]
        at += 1
        if word == "(":
            value = disjunction()
            at += 1
            return value
        if at + 1 < len(words) and words[at] == "WITH":
            at += 2
        return word in allowed

    def conjunction():
        nonlocal at
        value = term()
        while at < len(words) and words[at] == "AND":
            at += 1
            value = term() and value
        return value

    def disjunction():
        nonlocal at
        value = conjunction()
        while at < len(words) and words[at] == "OR":
            at += 1
            value = conjunction() or value
        return value

    return disjunction()


metadata = json.loads(
    subprocess.run(
        ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"],
        cwd=root,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
)
wrong = []
used = {node["id"] for node in metadata["resolve"]["nodes"]}
packages = [package for package in metadata["packages"] if package["id"] in used and package["source"] is not None]
for package in packages:
    name = f"{package['name']} {package['version']}"
    licence = package.get("license")
    if package["name"] in banned:
        wrong.append(f"{name} is banned")
    if not package["source"].startswith("registry+"):
        wrong.append(f"{name} does not come from the registry")
    if not licence:
        wrong.append(f"{name} names no licence")
    elif not permitted(licence):
        wrong.append(f"{name} has the licence {licence}")
print("\n".join(wrong) if wrong else f"{len(packages)} dependencies have allowed licences")
sys.exit(bool(wrong))
