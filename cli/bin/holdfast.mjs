#!/usr/bin/env node
import { existsSync } from 'node:fs';

const main = new URL('../dist/main.js', import.meta.url);
if (existsSync(main)) await import(main.href);
else {
  process.stderr.write('holdfast is not built yet: run `npm ci && npm run build` first\n');
  process.exit(2);
}
