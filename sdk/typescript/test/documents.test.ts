/** What the documents show is what happens: every example is type-checked, run, and its output compared. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import ts from "typescript";
import { startServer, type TestServer } from "tidewheel/testing";

const root = fileURLToPath(new URL("../../", import.meta.url));
const exampleRoot = join(root, "../../examples/typescript");
// Inside of the package, so that `tidewheel` means this package.
const folder = join(root, "build", "documents");

/** Programs and their outputs, by name. */
function examplesOf(markdown: string): Map<string, { program: string; output: string }> {
  const pattern = /<!-- example: (\S+) -->\n```ts\n([\s\S]*?)```\n\n```text\n([\s\S]*?)```/g;
  const found = [...markdown.matchAll(pattern)];
  return new Map(found.map(([, name = "", program = "", output = ""]) => [name, { program, output }]));
}

/** Writes a program as TypeScript and as what Node runs. */
async function place(path: string, program: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, program);
  const { outputText } = ts.transpileModule(program, { compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 } });
  await writeFile(path.replace(/\.ts$/, ".js"), outputText);
}

function checkTypes(files: string[]): void {
  const { config } = ts.readConfigFile(join(root, "tsconfig.json"), (path) => ts.sys.readFile(path)) as { config: unknown };
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
  const faults = ts.getPreEmitDiagnostics(ts.createProgram(files, { ...options, noEmit: true }));
  assert.equal(ts.formatDiagnostics(faults, { getCanonicalFileName: (name) => name, getCurrentDirectory: () => root, getNewLine: () => "\n" }), "");
}

describe("documents", () => {
  let server: TestServer;
  before(async () => {
    await rm(folder, { recursive: true, force: true });
    server = await startServer();
  });
  after(() => server.stop());

  async function run(script: string, args: string[] = []): Promise<string> {
    const environment = { ...process.env, TIDEWHEEL_URL: server.url, NO_COLOR: "1" };
    const { stdout } = await promisify(execFile)(process.execPath, [script, ...args], { env: environment, timeout: 60_000 });
    return stdout;
  }

  test("the README's programs print what it says", async () => {
    const markdown = await readFile(join(root, "README.md"), "utf8");
    const examples = examplesOf(markdown);
    assert.equal(examples.size, markdown.split("```ts\n").length - 1, "every program is an example with its output");
    const at = (name: string) => join(folder, `${name}.ts`);
    for (const [name, { program }] of examples) await place(at(name), program);
    checkTypes([...examples.keys()].map(at));
    for (const [name, { output }] of examples) {
      assert.equal(await run(at(name).replace(/ts$/, "js")), output, name);
    }
  });

  test("the e-mail worker prints and writes what its README says", async () => {
    const sources = (await readdir(exampleRoot)).filter((name) => name.endsWith(".ts"));
    const at = (name: string) => join(folder, "email", name);
    for (const name of sources) await place(at(name), await readFile(join(exampleRoot, name), "utf8"));
    checkTypes(sources.map(at));
    const markdown = await readFile(join(exampleRoot, "README.md"), "utf8");
    const block = (name: string) => new RegExp(`<!-- output: ${name} -->\n\`\`\`text\n([\\s\\S]*?)\`\`\``).exec(markdown)?.[1];
    const outbox = await mkdtemp(join(tmpdir(), "tidewheel-outbox-"));
    const worker = spawn(process.execPath, [at("email-worker.js"), outbox], {
      env: { ...process.env, TIDEWHEEL_URL: server.url },
      stdio: ["ignore", "pipe", "inherit"],
    });
    const said = text(worker.stdout);
    try {
      assert.equal(await run(at("send.js")), block("send"));
    } finally {
      worker.kill("SIGTERM");
    }
    assert.equal(await said, block("worker"));
    assert.deepEqual(await readdir(outbox), ["welcome-ann.eml"]);
    assert.equal(await readFile(join(outbox, "welcome-ann.eml"), "utf8"), block("eml"));
    await rm(outbox, { recursive: true });
  });

  test("the package holds what it says and works where it is installed", async () => {
    const place = await mkdtemp(join(tmpdir(), "tidewheel-pack-"));
    const npm = (args: string[], cwd: string) => promisify(execFile)("npm", args, { cwd, timeout: 120_000 });
    const { stdout } = await npm(["pack", "--ignore-scripts", "--json", "--pack-destination", place], root);
    const [packed] = JSON.parse(stdout) as { filename: string; files: { path: string }[] }[];
    const paths = packed?.files.map(({ path }) => path) ?? [];
    assert.ok(paths.every((path) => /^(dist\/\w+\.(d\.ts|js)|README\.md|LICENSE|package\.json)$/.test(path)), paths.join(" "));
    await writeFile(join(place, "package.json"), '{"name":"user","type":"module"}');
    await npm(["install", "--offline", "--no-audit", "--no-fund", join(place, packed?.filename ?? "")], place);
    await writeFile(join(place, "use.js"), `
      import { Client, Worker } from "tidewheel";
      import { once } from "tidewheel/inbox";
      import { runHandler } from "tidewheel/testing";
      console.log(typeof Client, typeof Worker, typeof once, (await runHandler((n) => n + 1, { payload: 1 })).result);
    `);
    assert.equal(await run(join(place, "use.js")), "function function function 2\n");
    await rm(place, { recursive: true });
  });
});
