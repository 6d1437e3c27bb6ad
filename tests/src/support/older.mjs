import { register } from 'node:module';

/** `node --import` this: an older version of a service, which lacks what `HOLDFAST_TEST_OLDER` takes out. */
register('./older-hooks.mjs', import.meta.url, { data: JSON.parse(process.env.HOLDFAST_TEST_OLDER ?? '[]') });
