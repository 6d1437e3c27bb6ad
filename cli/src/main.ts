import { EXIT } from './failure.js';
import { makeProgram } from './index.js';

makeProgram()
  .parseAsync()
  .catch((error: unknown) => {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    process.exit(EXIT.cannot);
  });
