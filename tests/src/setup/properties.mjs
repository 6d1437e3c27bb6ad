import fc from 'fast-check';

const full = process.env.HOLDFAST_PROOF === 'full';

/** How many cases each property is tried on, where it doesn't say so itself. */
fc.configureGlobal({ numRuns: full ? 3000 : 300 });
