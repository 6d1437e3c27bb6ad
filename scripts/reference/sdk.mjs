import path from 'node:path';
import ts from 'typescript';

/** The page's chapters, and whose declarations stand in each: a file, or a folder. */
const CHAPTERS = [
  ['Tools', 'What an agent may do to the world, and what is promised of it. How to choose: [make a tool safe](../how-to/make-a-tool-safe.md).', ['define/tool', 'define/accepted', 'host/pg-tool']],
  ['Probes', 'How a tool’s own system is asked what became of a call: [write a probe](../how-to/write-a-probe.md).', ['define/probe']],
  ['Agents', 'An agent’s code, and what it asks of the world.', ['define/agent', 'run/run', 'run/artifacts', 'define/json']],
  ['Waits', 'What a run may wait for: [wait and ask](../how-to/wait-and-ask.md).', ['wait/']],
  ['Workers', 'The process that runs agents and fires tools.', ['host/']],
  ['Clients', 'Programs that start, watch and answer runs.', ['client/']],
  ['Replay', 'A recorded run against changed code: [tests](../testing.md#replaying-a-run-against-changed-code).', ['replay/']],
  ['Errors', 'What is thrown at an author’s code, and what a tool may throw. Each says by its class what may be done next.', ['errors']],
];

/** What one calls stands before what it is called with. */
const KINDS = [(node) => ts.isFunctionDeclaration(node) || ts.isVariableDeclaration(node), ts.isClassDeclaration, () => true];

/**
 * docs/reference/sdk.md: all that `@holdfast/sdk` exports, from the declarations that it brings (`types`, the file of its index)
 * and their docstrings.
 * @throws Error naming each public member that has no docstring, or no chapter
 */
export function sdkPage(types) {
  const root = path.dirname(types);
  const exported = exportsOf(types);
  const declarationOf = (name) => exported.find((each) => each.name === name)?.declarations[0];
  const faults = [];
  const chapters = CHAPTERS.map(([title, about, places]) => ({ title, about, places, parts: [] }));
  for (const { name, declarations } of exported) {
    const [first] = declarations;
    const place = path.relative(root, first.getSourceFile().fileName);
    // The longer name is the narrower place.
    const [chapter, at] = chapters.flatMap((each) => each.places.filter((start) => place.startsWith(start)).map((start) => [each, start])).sort(([, a], [, b]) => b.length - a.length)[0] ?? [];
    if (chapter === undefined) faults.push(`${name} (${place}) has no chapter in scripts/reference/sdk.mjs`);
    chapter?.parts.push({ rank: [chapter.places.indexOf(at), KINDS.findIndex((is) => is(first))], lines: partOf(name, declarations, declarationOf, faults) });
  }
  if (faults.length > 0) throw new Error(`the reference of the SDK can't be written:\n${faults.join('\n')}`);
  return [
    '# The SDK',
    '',
    'Written by `node scripts/generate-reference.mjs` from the docstrings of `libs/sdk`; do not edit. Everything here is imported from `@holdfast/sdk`; what `libs/testing` brings is in [test your agents](../test-your-agents.md). Types that are named and not explained here (`Json`, `Failure`, `OperationKey` …) are those of `@holdfast/protocol`, as in [asyncapi.json](asyncapi.json). Times are milliseconds, moments epoch milliseconds, unless a member says otherwise.',
    ...chapters.flatMap(({ title, about, parts }) => ['', `## ${title}`, '', about, ...parts.sort((a, b) => a.rank[0] - b.rank[0] || a.rank[1] - b.rank[1]).flatMap(({ lines }) => lines)]),
    '',
  ].join('\n');
}

/** What a module exports, in the order of its files: names with their declarations. Only its own files are read. */
function exportsOf(types) {
  const options = { noLib: true, types: [], module: ts.ModuleKind.NodeNext };
  const host = ts.createCompilerHost(options);
  host.resolveModuleNameLiterals = (literals, from) =>
    literals.map(({ text }) => ({ resolvedModule: text.startsWith('.') ? { resolvedFileName: path.resolve(path.dirname(from), text.replace(/\.js$/, '.d.ts')), extension: ts.Extension.Dts } : undefined }));
  const program = ts.createProgram([types], options, host);
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(types);
  const module = source && checker.getSymbolAtLocation(source);
  if (module === undefined) throw new Error(`${types} is missing: run npm run build first`);
  return checker.getExportsOfModule(module).map((symbol) => {
    const { declarations = [] } = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
    return { name: symbol.name, declarations: declarations.filter((each) => !ts.isImportSpecifier(each)) };
  });
}

/** One exported name: its shape, its words, its members. */
function partOf(name, declarations, declarationOf, faults) {
  const lines = ['', `### \`${name}\``, ''];
  const described = declarations.map((each) => docOf(statementOf(each))).find((doc) => doc !== '');
  if (described === undefined) faults.push(`${name} has no docstring`);
  else lines.push(described, '');
  const [first] = declarations;
  if (ts.isInterfaceDeclaration(first) || ts.isClassDeclaration(first)) {
    const head = headOf(first);
    if (/<| extends /.test(head)) lines.push(code([head]));
    else lines.pop();
    lines.push(...membersOf(name, first, declarationOf, faults));
  } else if (!declarations.some((each) => ts.isVariableDeclaration(each) && ts.isTypeAliasDeclaration(declarations.at(-1)))) {
    lines.push(code(declarations.filter((each) => !ts.isModuleDeclaration(each)).map((each) => textOf(statementOf(each)))));
    // Functions that hang on a function.
    for (const space of declarations.filter(ts.isModuleDeclaration)) for (const statement of space.body.statements) lines.push('', code([`${name}.${textOf(statement).replace(/^(var|const|let|function) /, '')}`]));
  } else lines.pop();
  return lines;
}

/** Properties as a table, whatever is called one by one. */
function membersOf(name, declaration, declarationOf, faults) {
  const open = declaration.members.filter((each) => !(each.name && ts.isPrivateIdentifier(each.name)) && !(ts.getCombinedModifierFlags(each) & ts.ModifierFlags.Private));
  const called = open.filter((each) => ts.isMethodSignature(each) || ts.isMethodDeclaration(each) || ts.isConstructorDeclaration(each));
  const held = open.filter((each) => !called.includes(each) && !saysItself(each));
  const nameOf = (each) => (ts.isConstructorDeclaration(each) ? `new ${name}` : each.name.getText());
  const byName = called.reduce((all, each) => all.set(nameOf(each), [...(all.get(nameOf(each)) ?? []), each]), new Map());
  const wordsOf = (member, nodes) => {
    const doc = nodes.map(docOf).find((text) => text !== '') ?? inherited(declaration, member, declarationOf);
    // How an error is made is said by what it holds.
    if (doc === '' && !nodes.some(ts.isConstructorDeclaration)) faults.push(`${name}.${member} has no docstring`);
    return doc;
  };
  return [
    ...(held.length === 0 ? [] : ['', '| member | type | meaning |', '| --- | --- | --- |', ...held.map((each) => `| \`${nameOf(each)}${each.questionToken ? '?' : ''}\` | ${cell(`\`${typeOf(each)}\``)} | ${cell(wordsOf(nameOf(each), [each]))} |`)]),
    ...[...byName].flatMap(([member, nodes]) => {
      const words = wordsOf(member, nodes);
      return ['', code(nodes.map((each) => (ts.isConstructorDeclaration(each) ? made(name, each) : memberText(each)))), ...(words === '' ? [] : ['', words])];
    }),
  ];
}

/** What the class above says of a member of the same name. */
function inherited(declaration, member, declarationOf) {
  for (const { types } of declaration.heritageClauses ?? []) {
    for (const { expression } of types) {
      const above = declarationOf(expression.getText());
      const same = above?.members?.find((each) => each.name?.getText() === member);
      const doc = same === undefined ? '' : docOf(same);
      if (doc !== '') return doc;
      const higher = above === undefined ? '' : inherited(above, member, declarationOf);
      if (higher !== '') return higher;
    }
  }
  return '';
}

/** An error's `name` is its class. */
const saysItself = (member) => ts.isPropertyDeclaration(member) && member.name.getText() === 'name';

const statementOf = (declaration) => (ts.isVariableDeclaration(declaration) ? declaration.parent.parent : declaration);
const code = (lines) => ['```ts', ...lines, '```'].join('\n');
const cell = (text) => text.replaceAll('|', '\\|').replaceAll(/\s*\n+(- )?/g, ' ');
const flat = (node) => node.getText().replaceAll(/\s+/g, ' ');
const typeOf = (member) => {
  const type = flat(member.type ?? member.initializer ?? member);
  return member.questionToken ? type.replace(/ \| undefined$/, '') : type;
};

/** As it stands in the file, without what every line of it says. */
const textOf = (node) => narrow(node.getText().replace(/^(export )?(declare )?/, '').replace(/;$/, ''));
const memberText = (node) => narrow(node.getText().replace(/;$/, '').replaceAll(/^ {4}/gm, ''));
const narrow = (text) => text.replaceAll(/^( {4})+/gm, (indent) => ' '.repeat(indent.length / 2));
const made = (name, { parameters }) => `new ${name}(${parameters.map(flat).join(', ')})`;

function headOf(declaration) {
  const [text] = textOf(declaration).split('{', 1);
  return text.trim();
}

/** Words of a docstring, its paragraphs unwrapped; what is thrown stands in a list. */
function docOf(node) {
  const [doc] = (ts.getJSDocCommentsAndTags(node) ?? []).filter(ts.isJSDoc).slice(-1);
  if (doc === undefined) return '';
  const words = paragraphs(ts.getTextOfJSDocComment(doc.comment) ?? '');
  const thrown = (doc.tags ?? []).filter((tag) => tag.tagName.text === 'throws').map((tag) => `- throws ${thrownBy(tag)}`);
  return [words, thrown.join('\n')].filter((text) => text !== '').join('\n\n');
}

const paragraphs = (text) => text.split(/\n\s*\n/).map((each) => each.trim().replaceAll(/\s*\n\s*/g, ' ')).join('\n\n');
const thrownBy = (tag) => tag.getText().replace(/^@throws\s+/, '').replaceAll(/\s*\n\s*\*?\s*/g, ' ').trim();
