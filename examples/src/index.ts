export { runTasks, type TaskResult } from './tasks/run-tasks.js';
