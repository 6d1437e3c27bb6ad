import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from '@jest/globals';
import { FIGURES } from '@holdfast/gateway';
import { listMetrics } from '@holdfast/runtime/telemetry';
import { parse } from 'yaml';
import { evaluate, metricsIn, type Point, type Series } from './promql.js';

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}
interface Rules {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[];
}
interface Alert {
  readonly exp_labels: Readonly<Record<string, string>>;
  readonly exp_annotations: Readonly<Record<string, string>>;
}
interface Tests {
  readonly tests: readonly {
    readonly input_series: readonly { readonly series: string; readonly values: string }[];
    readonly alert_rule_test: readonly { readonly eval_time: string; readonly alertname: string; readonly exp_alerts: readonly Alert[] }[];
  }[];
}

const fileOf = (name: string): string => fileURLToPath(new URL(`../alerts/${name}`, import.meta.url));
const read = (name: string): unknown => parse(readFileSync(fileOf(name), 'utf8'));
const rules = (read('holdfast.yml') as Rules).groups.flatMap((group) => group.rules);
const { tests } = read('holdfast.test.yml') as Tests;
const minutes = (text: string): number => Number(text.replace('m', ''));

/** promtool's notation: values apart by blanks; `a+bxn` is a and n more, each b higher; `axn` is a and n more of it. */
const valuesOf = (text: string): number[] =>
  text.split(' ').flatMap((part) => {
    const [, first, step = '0', more] = /^([\d.]+)(?:\+([\d.]+))?x(\d+)$/.exec(part) ?? [];
    return more === undefined ? [Number(part)] : Array.from({ length: Number(more) + 1 }, (_, i) => Number(first) + i * Number(step));
  });
function seriesOf({ series, values }: { readonly series: string; readonly values: string }): Series {
  const [, name = '', labels = ''] = /^(\w+)\{(.*)\}$/.exec(series) ?? [];
  return { name, labels: Object.fromEntries([...labels.matchAll(/(\w+)="([^"]*)"/g)].map(([, label = '', value = '']) => [label, value])), values: valuesOf(values) };
}

/** Alerts that fire at a minute: those whose expression held from then back for as long as the rule asks. */
function firing(rule: Rule, series: readonly Series[], minute: number): Point[] {
  const heldFor = minutes(rule.for ?? '0m');
  if (minute < heldFor) return [];
  const key = ({ labels }: Point): string => JSON.stringify(labels);
  const held = Array.from({ length: heldFor + 1 }, (_, back) => new Set(evaluate(rule.expr, series, minute - back).map(key)));
  return evaluate(rule.expr, series, minute).filter((point) => held.every((then) => then.has(key(point))));
}
const told = (text: string, labels: Point['labels']): string => text.replaceAll(/\{\{ \$labels\.(\w+) \}\}/g, (_, label: string) => labels[label] ?? '');

describe('each alert rule', () => {
  test.each(tests.flatMap(({ input_series, alert_rule_test }) => alert_rule_test.map((of) => ({ ...of, input_series }))))('$alertname at $eval_time', ({ alertname, eval_time, exp_alerts, input_series }) => {
    const rule = rules.find(({ alert }) => alert === alertname);
    if (rule === undefined) throw new Error(`there is no rule ${alertname}`);
    const fired = firing(rule, input_series.map(seriesOf), minutes(eval_time)).map(({ labels }) => ({
      exp_labels: { ...labels, ...rule.labels },
      exp_annotations: Object.fromEntries(Object.entries(rule.annotations).map(([name, text]) => [name, told(text, labels)])),
    }));
    expect(fired).toEqual(exp_alerts);
  });

  test('is shown to fire, and not to fire before', () => {
    const cases = tests.flatMap(({ alert_rule_test }) => alert_rule_test);
    for (const { alert } of rules) expect([alert, cases.filter(({ alertname }) => alertname === alert).map(({ exp_alerts }) => exp_alerts.length)]).toEqual([alert, [0, 1]]);
  });

  test('reads metrics that there are', () => {
    const there = new Set(['up', ...listMetrics().map(({ name }) => name), ...FIGURES.flatMap(({ metrics }) => metrics.map(({ name }) => name))]);
    expect(rules.flatMap(({ expr }) => metricsIn(expr)).filter((name) => !there.has(name))).toEqual([]);
  });

  test('stands in the form for the Prometheus operator as it stands in the plain one', () => {
    expect((read('holdfast.prometheus-rule.yml') as { spec: Rules }).spec).toEqual(read('holdfast.yml'));
  });

  test('is understood by Prometheus itself, where its own tool is at hand', () => {
    const found = spawnSync('promtool', ['--version']).status === 0;
    expect(found ? execFileSync('promtool', ['test', 'rules', fileOf('holdfast.test.yml')], { encoding: 'utf8' }) : 'SUCCESS by the tests above').toContain('SUCCESS');
  });
});
