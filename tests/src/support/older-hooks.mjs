/** Hooks of node's module loader: a product's file is read with some words changed. */
let changes = [];

export function initialize(given) {
  changes = given;
}

export async function load(url, context, next) {
  const loaded = await next(url, context);
  const mine = changes.filter(({ file }) => url.endsWith(file));
  if (mine.length === 0) return loaded;
  let source = String(loaded.source);
  for (const { file, from, to } of mine) {
    if (!source.includes(from)) throw new Error(`${file} no longer says ${JSON.stringify(from)}: this test's older version is none`);
    source = source.replaceAll(from, to);
  }
  return { ...loaded, source };
}

/** A service is bundled into one file; what it was made of lies beside it, in files whose words can be changed. */
export async function resolve(specifier, context, next) {
  const found = await next(specifier, context);
  return { ...found, url: found.url.replace(/(\/services\/\w+\/dist\/)main\.js$/, '$1unbundled.js') };
}
