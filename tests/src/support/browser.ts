import { access, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import axe from 'axe-core';
import { chromium, type Browser, type Page } from 'playwright-core';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome-stable', 'google-chrome'];
const ARGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

interface Found {
  readonly executablePath: string;
  readonly env: Record<string, string>;
  /** Goes with the browser. */
  readonly folder: string | null;
}

const environment = (): Record<string, string> => Object.fromEntries(Object.entries(process.env).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])));

/** This machine's Chromium, or else the one that an npm package carries with all the libraries that it needs (`HOLDFAST_CHROMIUM=carried` takes that anyway). */
async function find(): Promise<Found> {
  const wanted = process.env['HOLDFAST_CHROMIUM'];
  if (wanted === 'carried') return unpack();
  const folders = (process.env['PATH'] ?? '').split(path.delimiter);
  for (const candidate of [wanted, ...NAMES.flatMap((name) => folders.map((folder) => path.join(folder, name)))]) {
    if (candidate !== undefined && (await access(candidate).then(() => true, () => false))) return { executablePath: candidate, env: environment(), folder: null };
  }
  return unpack();
}

/** The package unpacks itself into the folder for temporary files, and tells the loader by the environment where its libraries are. */
async function unpack(): Promise<Found> {
  const folder = await mkdtemp(path.join(tmpdir(), 'hf-chromium-'));
  const before = { ...process.env };
  try {
    Object.assign(process.env, { TMPDIR: folder, AWS_EXECUTION_ENV: `AWS_Lambda_nodejs${process.versions.node.split('.')[0] ?? '20'}.x` });
    const { default: carried } = await import('@sparticuz/chromium');
    const executablePath = await carried.executablePath();
    return { executablePath, env: { ...environment(), TMPDIR: before['TMPDIR'] ?? tmpdir() }, folder };
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  } finally {
    for (const name of ['TMPDIR', 'AWS_EXECUTION_ENV', 'LD_LIBRARY_PATH', 'FONTCONFIG_PATH', 'HOME']) {
      const value = before[name];
      if (value === undefined) Reflect.deleteProperty(process.env, name);
      else process.env[name] = value;
    }
  }
}

/** A real Chromium, with what tests ask of its pages. */
export class TestBrowser {
  /** What pages complained of. */
  readonly complaints: string[] = [];

  private constructor(
    private readonly browser: Browser,
    private readonly folder: string | null,
  ) {}

  /** @throws with what to do where none can be had */
  static async start(): Promise<TestBrowser> {
    try {
      const { executablePath, env, folder } = await find();
      return new TestBrowser(await chromium.launch({ executablePath, env, args: ARGS, headless: true }), folder);
    } catch (error) {
      throw new Error('The console is tested in a real Chromium, and none starts here. Install one with `apt-get install chromium`, or name one in HOLDFAST_CHROMIUM.', { cause: error });
    }
  }

  /** A page of its own, with a session of its own. */
  async page({ width = 1280, height = 900 }: { width?: number; height?: number } = {}): Promise<Page> {
    const context = await this.browser.newContext({ viewport: { width, height }, reducedMotion: 'reduce' });
    const page = await context.newPage();
    page.on('console', (message) => {
      if (/content security policy/i.test(message.text())) this.complaints.push(message.text());
    });
    page.on('pageerror', (error) => this.complaints.push(error.message));
    return page;
  }

  async stop(): Promise<void> {
    await this.browser.close();
    if (this.folder !== null) await rm(this.folder, { recursive: true, force: true });
  }
}

/** What of a page not everybody can use, by WCAG 2.2 AA: the rule, and where. `contrast`: only what depends on colours. */
export async function barriers(page: Page, what: 'all' | 'contrast' = 'all'): Promise<string[]> {
  const rules = what === 'contrast' ? { type: 'rule', values: ['color-contrast', 'link-in-text-block'] } : { type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] };
  await page.evaluate(axe.source);
  const found = await page.evaluate<{ violations: { id: string; nodes: { html: string; failureSummary?: string }[] }[] }>(`axe.run(document, ${JSON.stringify({ runOnly: rules, resultTypes: ['violations'] })})`);
  return found.violations.flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary = '' }) => `${id}: ${html.slice(0, 200)} ${failureSummary.replaceAll(/\s+/g, ' ')}`));
}
