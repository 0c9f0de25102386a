// The documentation as a site: `make site`. Pages are the same files that are read in the repository.
import { existsSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { slug } from 'github-slugger'

const docs = resolve(import.meta.dirname, '..')
const repository = 'https://github.com/kubexm/kubexm/blob/main/'

// Links to files outside of docs lead to the repository.
function outside(md) {
  const open = md.renderer.rules.link_open ?? ((tokens, i, options, env, self) => self.renderToken(tokens, i, options))
  md.renderer.rules.link_open = (tokens, i, options, env, self) => {
    const to = tokens[i].attrGet('href')
    const [path, mark] = to.split('#')
    if (path && !/^[a-z]+:/.test(path)) {
      const file = resolve(dirname(join(docs, env.relativePath)), decodeURIComponent(path))
      if (relative(docs, file).startsWith('..') || !file.endsWith('.md')) {
        if (!existsSync(file)) throw new Error(`${env.relativePath}: dead link ${to}`)
        tokens[i].attrSet('href', repository + relative(join(docs, '..'), file) + (mark ? '#' + mark : ''))
      }
    }
    return open(tokens, i, options, env, self)
  }
}

const sidebar = (base, words) => [
  ['tutorial', 'high-availability', 'offline', 'security', 'coming-from'],
  ['troubleshooting', 'exit-codes', 'faq', 'glossary', 'architecture'],
].map((pages, n) => ({ text: words[n], items: pages.map((page, i) => ({ text: words[2][n * 5 + i], link: `${base}/${page}` })) }))

export default {
  title: 'kubexm',
  description: 'Kubernetes on Linux machines that you reach over SSH',
  rewrites: { 'README.md': 'index.md', 'zh/README.md': 'zh/index.md', 'adr/README.md': 'adr/index.md' },
  srcExclude: ['node_modules/**'],
  ignoreDeadLinks: false,
  vite: { build: { chunkSizeWarningLimit: 2000 } },
  markdown: { html: false, anchor: { slugify: (s) => slug(s) }, config: (md) => md.use(outside) },
  themeConfig: {
    search: { provider: 'local' },
    socialLinks: [{ icon: 'github', link: 'https://github.com/kubexm/kubexm' }],
    outline: 'deep',
  },
  locales: {
    root: {
      label: 'English',
      lang: 'en',
      themeConfig: {
        nav: [{ text: 'Reference', link: '/config/reference' }, { text: 'Commands', link: '/cli/kubexm' }, { text: 'Support matrix', link: '/support-matrix' }],
        sidebar: sidebar('', ['Using kubexm', 'Looking things up', ['Tutorial', 'High availability', 'Offline', 'Security', 'Coming from another tool', 'Troubleshooting', 'Exit codes', 'FAQ', 'Glossary', 'Architecture']]),
      },
    },
    zh: {
      label: '简体中文',
      lang: 'zh-CN',
      themeConfig: {
        nav: [{ text: '参考', link: '/config/reference' }, { text: '命令', link: '/cli/kubexm' }, { text: '支持矩阵', link: '/support-matrix' }],
        sidebar: sidebar('/zh', ['使用', '查阅', ['教程', '高可用', '离线安装', '安全', '从其他工具转来', '故障排查', '退出码', '常见问题', '术语表', '架构']]),
      },
    },
  },
}
