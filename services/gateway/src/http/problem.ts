/** Every way in which the API says no: RFC 9457, one name for one thing. */
export const PROBLEMS = {
  'invalid-request': { status: 400, title: 'The request is not what this address takes' },
  unauthenticated: { status: 401, title: 'Nobody is known by these credentials' },
  forbidden: { status: 403, title: 'Not with these credentials' },
  'not-found': { status: 404, title: 'There is no such thing here' },
  'method-not-allowed': { status: 405, title: 'This address does not take that method' },
  refused: { status: 409, title: 'The service that owns it refused' },
  'idempotency-in-progress': { status: 409, title: 'A request with this Idempotency-Key is being answered' },
  'too-large': { status: 413, title: 'The request is too large' },
  'unsupported-media-type': { status: 415, title: 'Only application/json is taken' },
  'idempotency-key-reused': { status: 422, title: 'This Idempotency-Key belongs to another request' },
  'rate-limited': { status: 429, title: 'Too many requests' },
  'no-room': { status: 429, title: 'A limit leaves no room for it now' },
  internal: { status: 500, title: 'The gateway failed' },
  unavailable: { status: 503, title: 'Something that the gateway needs can’t be reached' },
} as const;
export type ProblemCode = keyof typeof PROBLEMS;

/** Name of a kind of problem: an identifier, no address. */
export const problemType = (code: ProblemCode): string => `urn:holdfast:problem:${code}`;

interface More {
  /** Members besides those of the RFC. */
  readonly extra?: Readonly<Record<string, unknown>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly cause?: unknown;
}

/** An answer that says no. What it says is for the asker: it names nothing that the asker may not know. */
export class Problem extends Error {
  override readonly name = 'Problem';
  readonly extra: Readonly<Record<string, unknown>>;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    readonly code: ProblemCode,
    readonly detail: string,
    { extra = {}, headers = {}, cause }: More = {},
  ) {
    super(detail, { cause });
    this.extra = extra;
    this.headers = headers;
  }

  get status(): number {
    return PROBLEMS[this.code].status;
  }

  /** The owning service decided so, and would not decide otherwise later. */
  get isFinal(): boolean {
    return this.code === 'refused' && this.headers['retry-after'] === undefined;
  }

  get body(): Readonly<Record<string, unknown>> {
    return { type: problemType(this.code), title: PROBLEMS[this.code].title, status: this.status, detail: this.detail, ...this.extra };
  }
}
