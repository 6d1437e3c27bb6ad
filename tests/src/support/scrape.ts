export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/** Samples in Prometheus' text format. */
export function samplesIn(text: string): Sample[] {
  return text.split('\n').flatMap((line) => {
    const match = LINE.exec(line);
    if (match?.[1] === undefined) return [];
    const labels = Object.fromEntries([...(match[2] ?? '').matchAll(LABEL)].map(([, name = '', value = '']) => [name, value]));
    return [{ name: match[1], labels, value: Number(match[3]) }];
  });
}

/** The sum of what a page says of a metric, of samples with these labels; undefined where it says nothing. */
export function valueOf(samples: readonly Sample[], name: string, labels: Readonly<Record<string, string>> = {}): number | undefined {
  const found = samples.filter((sample) => sample.name === name && Object.entries(labels).every(([label, value]) => sample.labels[label] === value));
  return found.length === 0 ? undefined : found.reduce((sum, { value }) => sum + value, 0);
}
