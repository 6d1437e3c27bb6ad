import type { SyntaxNode } from '@lezer/common';
import { parser } from '@prometheus-io/lezer-promql';

/** A metric with labels, and its value at each step of a minute; null where nothing was scraped. */
export interface Series {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly values: readonly (number | null)[];
}
export interface Point {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/**
 * As much of PromQL as our rules use, on Prometheus' own grammar: selectors, comparison with a number, `and`, `or`,
 * `sum by`, `increase`. Anything else is an error, never a guess. Time goes in steps of one minute.
 */
export function evaluate(expression: string, series: readonly Series[], minute: number): Point[] {
  return new Evaluation(expression, series, minute).run();
}

/** Names of all metrics that an expression reads. */
export function metricsIn(expression: string): string[] {
  const names: string[] = [];
  parser.parse(expression).iterate({
    enter: (node) => void (node.name === 'Identifier' && node.node.parent?.name === 'VectorSelector' && names.push(expression.slice(node.from, node.to))),
  });
  return names;
}

const LOOK_BACK_MINUTES = 5;
const COMPARE: Readonly<Record<string, (a: number, b: number) => boolean>> = { Gtr: (a, b) => a > b, Lss: (a, b) => a < b, Gte: (a, b) => a >= b, Lte: (a, b) => a <= b, Eql: (a, b) => a === b, Neq: (a, b) => a !== b };
const MATCH: Readonly<Record<string, (label: string, value: string) => boolean>> = {
  EqlSingle: (label, value) => label === value,
  Neq: (label, value) => label !== value,
  EqlRegex: (label, value) => new RegExp(`^(?:${value})$`).test(label),
  NeqRegex: (label, value) => !new RegExp(`^(?:${value})$`).test(label),
};

const nameOf = (labels: Point['labels']): string => JSON.stringify(Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)));

class Evaluation {
  constructor(
    private readonly text: string,
    private readonly series: readonly Series[],
    private readonly minute: number,
  ) {}

  run(): Point[] {
    const root = parser.parse(this.text).topNode;
    root.cursor().iterate((node) => {
      if (node.type.isError) throw new Error(`not PromQL: ${this.text}`);
    });
    return this.#vector(child(root, 0));
  }

  #vector(node: SyntaxNode): Point[] {
    switch (node.name) {
      case 'VectorSelector':
        return this.#selected(node).flatMap(({ labels, values }) => {
          const value = latest(values, this.minute);
          return value === null ? [] : [{ labels, value }];
        });
      case 'BinaryExpr':
        return this.#binary(child(node, 0), child(node, 1).name, child(node, 2));
      case 'AggregateExpr':
        return this.#sum(node);
      case 'FunctionCall':
        return this.#increase(node);
      default:
        throw new Error(`not supported here: ${node.name} in ${this.text}`);
    }
  }

  #binary(left: SyntaxNode, operator: string, right: SyntaxNode): Point[] {
    const found = this.#vector(left);
    if (operator === 'And' || operator === 'Or') {
      const other = this.#vector(right);
      const names = (points: readonly Point[]): Set<string> => new Set(points.map(({ labels }) => nameOf(labels)));
      if (operator === 'And') return found.filter(({ labels }) => names(other).has(nameOf(labels)));
      return [...found, ...other.filter(({ labels }) => !names(found).has(nameOf(labels)))];
    }
    const holds = COMPARE[operator];
    if (holds === undefined || right.name !== 'NumberDurationLiteral') throw new Error(`not supported here: ${operator} in ${this.text}`);
    return found.filter(({ value }) => holds(value, Number(this.#said(right))));
  }

  #sum(node: SyntaxNode): Point[] {
    if (this.#said(only(node, 'AggregateOp')) !== 'sum') throw new Error(`not supported here: ${this.text}`);
    const by = all(only(only(node, 'AggregateModifier'), 'GroupingLabels'), 'LabelName').map((label) => this.#said(label));
    const sums = new Map<string, Point>();
    for (const { labels, value } of this.#vector(child(only(node, 'FunctionCallBody'), 0))) {
      const kept = Object.fromEntries(by.map((label) => [label, labels[label] ?? '']));
      sums.set(nameOf(kept), { labels: kept, value: (sums.get(nameOf(kept))?.value ?? 0) + value });
    }
    return [...sums.values()];
  }

  /** Without extrapolation: whether it is above 0 is the same with it. */
  #increase(node: SyntaxNode): Point[] {
    if (this.#said(only(node, 'FunctionIdentifier')) !== 'increase') throw new Error(`not supported here: ${this.text}`);
    const matrix = child(only(node, 'FunctionCallBody'), 0);
    const [, minutes] = /^(\d+)m$/.exec(this.#said(only(matrix, 'DurationExpr'))) ?? [];
    if (minutes === undefined) throw new Error(`only minutes are supported here: ${this.text}`);
    return this.#selected(only(matrix, 'VectorSelector')).flatMap(({ labels, values }) => {
      const seen = values.slice(Math.max(0, this.minute - Number(minutes)), this.minute + 1).filter((value) => value !== null);
      if (seen.length < 2) return [];
      return [{ labels, value: seen.slice(1).reduce((sum, value, i) => sum + (value >= (seen[i] ?? 0) ? value - (seen[i] ?? 0) : value), 0) }];
    });
  }

  #selected(node: SyntaxNode): Series[] {
    const name = this.#said(only(node, 'Identifier'));
    const matchers = node.getChild('LabelMatchers');
    const wanted = (matchers === null ? [] : all(matchers, 'UnquotedLabelMatcher')).map((matcher) => {
      const holds = MATCH[child(only(matcher, 'MatchOp'), 0).name];
      if (holds === undefined) throw new Error(`not supported here: ${this.text}`);
      const [label, value] = [this.#said(only(matcher, 'LabelName')), this.#said(only(matcher, 'StringLiteral')).slice(1, -1)];
      return (labels: Point['labels']): boolean => holds(labels[label] ?? '', value);
    });
    return this.series.filter((each) => each.name === name && wanted.every((holds) => holds(each.labels)));
  }

  #said({ from, to }: SyntaxNode): string {
    return this.text.slice(from, to);
  }
}

function latest(values: readonly (number | null)[], minute: number): number | null {
  for (let at = Math.min(minute, values.length - 1); at >= 0 && minute - at < LOOK_BACK_MINUTES; at -= 1) {
    const value = values[at];
    if (value !== null && value !== undefined) return value;
  }
  return null;
}

function child(node: SyntaxNode, index: number): SyntaxNode {
  let found = node.firstChild;
  for (let i = 0; i < index; i += 1) found = found?.nextSibling ?? null;
  if (found === null) throw new Error(`${node.name} has no part ${index}`);
  return found;
}
function only(node: SyntaxNode, name: string): SyntaxNode {
  const found = node.getChild(name);
  if (found === null) throw new Error(`${node.name} has no ${name}`);
  return found;
}
const all = (node: SyntaxNode, name: string): SyntaxNode[] => node.getChildren(name);
