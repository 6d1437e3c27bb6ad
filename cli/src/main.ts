import { EXIT } from './failure.js';
import { runProgram } from './index.js';

const code = await runProgram(process.argv.slice(2));
if (code === EXIT.cannot) process.exit(code);
process.exitCode = code;
