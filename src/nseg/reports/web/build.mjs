// Builds ../bundle/page.js, studio.js and page.css; with --tests, builds the tests for node instead.
//
// The header of each file holds the SHA-256 of the sources and of the file's body, so that a stale or edited bundle is
// detected without npm (tests/test_report.py).

import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));

/** All files that determine a bundle, in a fixed order. */
function sources(...folders) {
  const code = folders.flatMap((folder) => readdirSync(join(here, folder)).map((name) => `${folder}/${name}`));
  return [...code, "build.mjs", "package-lock.json"].sort();
}

function sha256(...parts) {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest("hex");
}

async function bundled(entry) {
  const result = await build({
    entryPoints: [join(here, entry)],
    bundle: true,
    write: false,
    minify: true,
    charset: "ascii",
    format: "iife",
    target: ["es2022", "chrome109", "firefox115", "safari16"],
    legalComments: "eof",
    absWorkingDir: here,
  });
  return result.outputFiles[0].text.replaceAll("</", "<\\/"); // the text is embedded in a <script> or <style>
}

async function page() {
  const licence = readFileSync(join(here, "node_modules/cytoscape/LICENSE"), "utf8").trim();
  const out = join(here, "../bundle");
  mkdirSync(out, { recursive: true });
  for (const [folders, entry, name, notice] of [
    [["src"], "src/main.ts", "page.js", `\n\nIt contains Cytoscape.js under this licence:\n\n${licence}\n`],
    [["src", "studio"], "studio/studio.ts", "studio.js", ""],
    [["src"], "src/page.css", "page.css", ""],
  ]) {
    const digest = sha256(...sources(...folders).flatMap((name) => [name, "\0", readFileSync(join(here, name)), "\0"]));
    const body = await bundled(entry);
    const header = `/*! nseg report: built by web/build.mjs, do not edit.${notice}\nsources ${digest}\nbody ${sha256(body)}\n*/\n`;
    writeFileSync(join(out, name), header + body);
  }
}

async function tests() {
  const out = join(here, ".tests");
  rmSync(out, { recursive: true, force: true });
  const names = readdirSync(join(here, "test")).filter((name) => name.endsWith(".test.ts"));
  await build({
    entryPoints: names.map((name) => join(here, "test", name)),
    bundle: true,
    platform: "node",
    format: "esm",
    outdir: out,
    outExtension: { ".js": ".mjs" },
  });
}

await (process.argv.includes("--tests") ? tests() : page());
